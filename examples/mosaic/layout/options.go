package layout

import "fmt"

// Reuse says how freely a tile may be used again: a dial from [Once] to [BestMatch]. The values between are 1 to 99. The zero value means
// [DefaultReuse].
type Reuse int

const (
	// Once uses every tile once as far as they go: none twice if there are as many tiles as cells, else
	// each of them about equally often.
	Once Reuse = -1

	// DefaultReuse repeats tiles that match well. With fewer repetitions, tiles that match
	// nowhere show as specks.
	DefaultReuse Reuse = 80

	// BestMatch takes the tile that looks most like the cell, however often.
	BestMatch Reuse = 100
)

// ReusePercent returns the setting for a percentage as people are asked for it: 0 is [Once], 100 is [BestMatch]. A percentage outside
// that range gives a setting that [Options.Validate] refuses.
func ReusePercent(percent int) Reuse {
	switch {
	case percent == 0:
		return Once
	case percent < 0:
		return Once - 1
	}
	return Reuse(percent)
}

// Percent returns the setting as a percentage, 0 to 100.
func (r Reuse) Percent() int {
	switch r {
	case 0:
		return int(DefaultReuse)
	case Once:
		return 0
	}
	return int(r)
}

// MaxTint is the strongest tint, in per cent. Beyond it one sees the picture rather than the tiles.
const MaxTint = 40

// DefaultTint is the tint of every mosaic for which nobody chose another, in per cent. It pulls
// tiles of a wrong hue towards the picture, and is too weak to be noticed.
const DefaultTint = 12

// Options say how tiles are chosen and laid. Nil and the zero value mean the defaults.
type Options struct {
	// Reuse says how freely tiles are used again. Defaults to [DefaultReuse].
	Reuse Reuse

	// Tint is how much of the picture's own colours is mixed into the tiles, in per cent, 0 to [MaxTint]. 0 means none.
	Tint int
}

// Validate returns an error that says which setting is out of bounds, or nil. The receiver may be nil.
func (o *Options) Validate() error {
	switch {
	case o == nil:
		return nil
	case o.Reuse < Once || o.Reuse > BestMatch:
		return fmt.Errorf("choosing the tiles: a reuse of %d per cent is not possible: choose 0 (every tile once) to 100 (best match)", o.Reuse.Percent())
	case o.Tint < 0 || o.Tint > MaxTint:
		return fmt.Errorf("choosing the tiles: a tint of %d per cent is not possible: choose 0 to %d", o.Tint, MaxTint)
	}
	return nil
}

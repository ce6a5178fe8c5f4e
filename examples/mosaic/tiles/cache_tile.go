package tiles

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"math"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// outcome is what became of a file: a tile, or the reason why it has none.
type outcome struct {
	tile    Tile
	err     error
	ignored bool // the picture has a colour profile that was ignored
}

// damagedError is a [picture.ErrDamaged] that comes from the cache.
type damagedError string

func (e damagedError) Error() string { return string(e) }
func (damagedError) Unwrap() error   { return picture.ErrDamaged }

// The kinds of outcome in an entry.
const (
	cachedTile = iota
	cachedTileIgnored
	cachedDamage
)

// version identifies the content of a file: its size and time of modification.
func version(info fs.FileInfo) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(info.Size()))
	return binary.BigEndian.AppendUint64(b, uint64(info.ModTime().UnixNano()))
}

const versionLen = 16

// marshal returns the entry for a file, or nil for what is not worth one: an error that is found without decoding, or
// that another try may not give.
func (o outcome) marshal(info fs.FileInfo) []byte {
	b := version(info)
	switch {
	case errors.Is(o.err, picture.ErrDamaged):
		return append(append(b, cachedDamage), o.err.Error()...)
	case o.err != nil:
		return nil
	case o.ignored:
		b = append(b, cachedTileIgnored)
	default:
		b = append(b, cachedTile)
	}
	for _, v := range []float64{o.tile.Mean.R, o.tile.Mean.G, o.tile.Mean.B} {
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(v))
	}
	for p := o.tile.Pix; len(p) >= 4; p = p[4:] {
		b = append(b, p[:3]...)
	}
	return b
}

// unmarshalOutcome reads an entry. It reports false if that is for another version of the file, or not an entry.
func unmarshalOutcome(b []byte, info fs.FileInfo, name string, size int) (o outcome, ok bool) {
	if len(b) < versionLen+1 || string(b[:versionLen]) != string(version(info)) {
		return o, false
	}
	kind, b := b[versionLen], b[versionLen+1:]
	switch {
	case kind == cachedDamage:
		return outcome{err: damagedError(b)}, true
	case kind > cachedTileIgnored || len(b) != 24+3*size*size:
		return o, false
	}
	o.ignored = kind == cachedTileIgnored
	o.tile = Tile{Name: name, Pix: make([]byte, 0, 4*size*size)}
	for i, v := range []*float64{&o.tile.Mean.R, &o.tile.Mean.G, &o.tile.Mean.B} {
		*v = math.Float64frombits(binary.BigEndian.Uint64(b[8*i:]))
	}
	for p := b[24:]; len(p) > 0; p = p[3:] {
		o.tile.Pix = append(o.tile.Pix, p[0], p[1], p[2], 0xff)
	}
	return o, o.tile.check(size) == nil
}

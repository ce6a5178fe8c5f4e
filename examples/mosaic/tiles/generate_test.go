package tiles

import (
	"bytes"
	"crypto/sha256"
	"math"
	"sync"
	"testing"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

var (
	generatedMu sync.Mutex
	generatedBy = map[int]*Library{}
)

// generated keeps the libraries that tests share.
func generated(t testing.TB, size int) *Library {
	t.Helper()
	generatedMu.Lock()
	defer generatedMu.Unlock()
	if l := generatedBy[size]; l != nil {
		return l
	}
	l, err := Generate(size)
	if err != nil {
		t.Fatal(err)
	}
	generatedBy[size] = l
	return l
}

// Every colour of a 17³ grid through sRGB has a near tile.
func TestGenerateCoversSRGB(t *testing.T) {
	l := generated(t, 16)
	if l.Len() < 3000 || l.Len() > 4000 {
		t.Errorf("got %d tiles; want between 3000 and 4000", l.Len())
	}
	labs := make([]lab, l.Len())
	for i := range labs {
		labs[i] = labOf(l.Tile(i).Mean)
	}
	sum, worst := 0.0, 0.0
	light := func(i int) float64 { return picture.Decode16(uint16((i*0xffff + 8) / 16)) }
	for i := range 17 * 17 * 17 {
		c := labOf(picture.Linear{R: light(i % 17), G: light(i / 17 % 17), B: light(i / 289)})
		d := math.Inf(1)
		for _, lab := range labs {
			d = min(d, deltaE(c, lab))
		}
		sum, worst = sum+d, max(worst, d)
	}
	mean := sum / (17 * 17 * 17)
	t.Logf("%d tiles: mean ΔE %.2f, worst %.2f", l.Len(), mean, worst)
	if mean > 4.5 || worst > 17 {
		t.Errorf("mean ΔE is %.2f and the worst %.2f; want mean at most 4.5, worst at most 17", mean, worst)
	}
}

func TestGenerateMakesDistinctTexturedTiles(t *testing.T) {
	for _, size := range []int{1, 4, 16, 32} {
		l := generated(t, size)
		seen := map[[32]byte]string{}
		means := map[picture.Linear]string{}
		minimum := 8 // of 255
		if size < 8 {
			minimum = 3 // fine patterns merge in so few pixels
		}
		for i := range l.Len() {
			tile := l.Tile(i)
			if size >= 4 {
				if other, ok := seen[sha256.Sum256(tile.Pix)]; ok {
					t.Errorf("size %d: %s and %s: got the same pixels, want different ones", size, tile.Name, other)
				}
				seen[sha256.Sum256(tile.Pix)] = tile.Name
				if contrast(tile.Pix) < minimum {
					t.Errorf("size %d: contrast of %s: got %d, want at least %d", size, tile.Name, contrast(tile.Pix), minimum)
				}
			}
			if other, ok := means[tile.Mean]; ok {
				t.Errorf("size %d: %s and %s: got the same mean, want different ones", size, tile.Name, other)
			}
			means[tile.Mean] = tile.Name
			// Scaling must not shift the colour, except by the rounding of pixels.
			if d := deltaE(labOf(meanOf(tile.Pix)), labOf(tile.Mean)); d > 1.5 {
				t.Errorf("size %d: the pixels of %s are ΔE %.2f from its mean; want at most %v", size, tile.Name, d, 1.5)
			}
		}
	}
}

// contrast is the widest range of values in any channel.
func contrast(pix []byte) int {
	widest := 0
	for c := range 3 {
		lo, hi := 255, 0
		for i := c; i < len(pix); i += 4 {
			lo, hi = min(lo, int(pix[i])), max(hi, int(pix[i]))
		}
		widest = max(widest, hi-lo)
	}
	return widest
}

func meanOf(pix []byte) (m picture.Linear) {
	n := float64(len(pix) / 4)
	for i := 0; i < len(pix); i += 4 {
		m.R += picture.Decode8(pix[i]) / n
		m.G += picture.Decode8(pix[i+1]) / n
		m.B += picture.Decode8(pix[i+2]) / n
	}
	return m
}

func TestGenerateIsDeterministic(t *testing.T) {
	again, err := Generate(16)
	if err != nil {
		t.Fatal(err)
	}
	l := generated(t, 16)
	if again.ID() != l.ID() {
		t.Error("second library: got another, want the same")
	}
	for i := range l.Len() {
		if !bytes.Equal(again.Tile(i).Pix, l.Tile(i).Pix) {
			t.Fatalf("tile %d of the second library: got another, want the same", i)
		}
	}
	for _, size := range []int{-1, 0, 65} {
		if _, err := Generate(size); err == nil {
			t.Errorf("Generate(%d): got no error, want one", size)
		}
	}
}

func BenchmarkGenerate(b *testing.B) {
	for b.Loop() {
		if _, err := Generate(16); err != nil {
			b.Fatal(err)
		}
	}
}

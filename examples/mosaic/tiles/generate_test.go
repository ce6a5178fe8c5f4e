package tiles

import (
	"bytes"
	"crypto/sha256"
	"fmt"
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

// Every colour of a 17³ grid through sRGB has a near tile: within a step of its levels along each primary.
func TestGenerateCoversSRGB(t *testing.T) {
	if testing.Short() {
		t.Skip("compares thousands of colours")
	}
	l := generated(t, 16)
	if l.Len() != 3375 {
		t.Errorf("got %d tiles; want 3,375", l.Len())
	}
	means := make([][3]int, l.Len())
	for i := range means {
		m := meanOf(l.Tile(i).Pix)
		means[i] = [3]int{int(picture.Encode8(m.R)), int(picture.Encode8(m.G)), int(picture.Encode8(m.B))}
	}
	for i := range 17 * 17 * 17 {
		c := [3]int{i % 17 * 255 / 16, i / 17 % 17 * 255 / 16, i / 289 * 255 / 16}
		least := 255
		for _, m := range means {
			least = min(least, max(abs(m[0]-c[0]), abs(m[1]-c[1]), abs(m[2]-c[2])))
		}
		if least > 12 {
			t.Errorf("%v: got no tile within 12 of it, the nearest is %d away", c, least)
		}
	}
}

func abs(n int) int { return max(n, -n) }

// Tiles have patterns, but for those that are black or white, and keep their colour in every size.
func TestGenerateMakesDistinctTexturedTiles(t *testing.T) {
	if testing.Short() {
		t.Skip("compares thousands of tiles")
	}
	for _, size := range []int{1, 4, 16, 64} {
		l := generated(t, size)
		seen := map[[32]byte]string{}
		for i := range l.Len() {
			tile := l.Tile(i)
			if other, ok := seen[sha256.Sum256(tile.Pix)]; ok {
				t.Errorf("size %d: %s and %s: got the same pixels, want different ones", size, tile.Name, other)
			}
			seen[sha256.Sum256(tile.Pix)] = tile.Name
			var c [3]uint8
			if _, err := fmt.Sscanf(tile.Name[len(tile.Name)-6:], "%02x%02x%02x", &c[0], &c[1], &c[2]); err != nil {
				t.Fatal(err)
			}
			grey := max(min(c[0], 255-c[0]), min(c[1], 255-c[1]), min(c[2], 255-c[2])) > 50
			if size >= 16 && grey && contrast(tile.Pix) < 8 {
				t.Errorf("size %d: contrast of %s: got %d, want at least 8", size, tile.Name, contrast(tile.Pix))
			}
			want := picture.Linear{R: picture.Decode8(c[0]), G: picture.Decode8(c[1]), B: picture.Decode8(c[2])}
			if !near(meanOf(tile.Pix), want, 0.006) {
				t.Errorf("size %d: %s: got a mean of %v, want %v", size, tile.Name, meanOf(tile.Pix), want)
			}
		}
	}
}

func near(a, b picture.Linear, tolerance float64) bool {
	return math.Abs(a.R-b.R) <= tolerance && math.Abs(a.G-b.G) <= tolerance && math.Abs(a.B-b.B) <= tolerance
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
	if testing.Short() {
		t.Skip("generates thousands of tiles")
	}
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

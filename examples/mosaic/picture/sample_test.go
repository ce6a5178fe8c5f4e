package picture

import (
	"image"
	"testing"
)

// A mosaic of the sample should use much of the library.
func TestSampleIsColourful(t *testing.T) {
	img := Sample()
	if img.Bounds() != image.Rect(0, 0, 960, 640) || !img.Opaque() {
		t.Fatalf("sample: got %v, opaque %v; want 960×640, opaque", img.Bounds(), img.Opaque())
	}
	g, err := Average(img, img.Bounds(), 60, 40)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[[3]uint8]bool{}
	for _, m := range g.Means {
		seen[[3]uint8{Encode8(m.R) >> 4, Encode8(m.G) >> 4, Encode8(m.B) >> 4}] = true
	}
	if len(seen) < 100 {
		t.Errorf("different colours of cells: got %d, want at least 100", len(seen))
	}
}

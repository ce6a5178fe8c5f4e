package picture

import (
	"bytes"
	"errors"
	"image"
	"io"
	"slices"
	"testing"
)

// manyScans is a grey JPEG of side×side pixels with a scan of the mean and any number of scans of the other coefficients, whose data ends
// after a block.
func manyScans(side uint16, scans int) []byte {
	table := func(class byte) []byte { // one symbol, 0, of one bit
		return slices.Concat([]byte{0xff, 0xc4, 0, 20, class}, []byte{1}, make([]byte, 15), []byte{0})
	}
	blocks := int(side) / 8 * (int(side) / 8)
	scan := func(first, last byte) []byte {
		return slices.Concat([]byte{0xff, 0xda, 0, 8, 1, 1, 0, first, last, 0}, make([]byte, blocks/8), []byte{0x7f})
	}
	high, low := byte(side>>8), byte(side)
	return slices.Concat([]byte{0xff, 0xd8, 0xff, 0xdb, 0, 67, 0}, bytes.Repeat([]byte{1}, 64),
		[]byte{0xff, 0xc2, 0, 11, 8, high, low, high, low, 1, 1, 0x11, 0}, table(0), table(0x10),
		scan(0, 0), bytes.Repeat(scan(1, 63), scans-1), []byte{0xff, 0xd9})
}

func TestJPEGOfManyScansIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("decodes large files")
	}
	const side = 2048 // 4 megapixels, of which some 1,290 scans are decoded
	img, err := Decode(bytes.NewReader(manyScans(side, 50)))
	if err != nil || img.Bounds() != image.Rect(0, 0, side, side) {
		t.Fatalf("50 scans: got error %v, want the picture", err)
	}
	if _, err := Decode(bytes.NewReader(manyScans(8, 5000))); err != nil {
		t.Errorf("5,000 scans of a tiny picture: got error %v, want none", err)
	}
	limited := &scanLimit{r: bytes.NewReader(manyScans(side, 1400)), left: maxScans(side, side)}
	if _, err := io.Copy(io.Discard, limited); !errors.Is(err, errManyScans) {
		t.Errorf("1,400 scans: got error %v, want one of too many scans", err)
	}
}

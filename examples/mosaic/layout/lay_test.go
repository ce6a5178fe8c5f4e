package layout

import (
	"bytes"
	"errors"
	"image"
	"image/draw"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/examples/mosaic/tiles"
)

func laid(t interface{ Fatal(...any) }, l *Layout, library *tiles.Library) *image.RGBA {
	img, err := l.Lay(library)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// However a layout is cut, stored and laid, the pixels are those of the whole.
func TestPartsGiveThePixelsOfTheWhole(t *testing.T) {
	library := randomLibrary(t, 5, 40, 1)
	rapid.Check(t, func(t *rapid.T) {
		l := anyLayout(t)
		l.Library = library.ID()
		for i := range l.Tiles {
			l.Tiles[i] %= 40
		}
		want := laid(t, l, library)
		got := image.NewRGBA(want.Rect)
		for y := 0; y < l.Cells.Rows; {
			end := rapid.IntRange(y+1, l.Cells.Rows).Draw(t, "end")
			for x := 0; x < l.Cells.Cols; {
				right := rapid.IntRange(x+1, l.Cells.Cols).Draw(t, "right")
				part, err := Read(bytes.NewReader(written(t, l.Window(image.Rect(x, y, right, end)))))
				if err != nil {
					t.Fatal(err)
				}
				draw.Draw(got, image.Rect(x*5, y*5, right*5, end*5), laid(t, part, library), image.Point{}, draw.Src)
				x = right
			}
			y = end
		}
		if !bytes.Equal(got.Pix, want.Pix) {
			t.Fatal("mosaic of parts: got other pixels, want those of the whole")
		}
	})
}

func TestLayRefuses(t *testing.T) {
	library := randomLibrary(t, 2, 5, 1)
	l := small()
	if _, err := l.Lay(library); !errors.Is(err, ErrOtherLibrary) {
		t.Errorf("another library: got error %v, want ErrOtherLibrary", err)
	}
	l.Library = library.ID()
	for _, tile := range []int32{-1, 5, 1<<31 - 1} {
		l.Tiles[1] = tile
		if _, err := l.Lay(library); err == nil || !strings.Contains(err.Error(), "cell 1 has tile") {
			t.Errorf("tile %d of 5: got error %v, want one about cell 1", tile, err)
		}
	}
}

func TestLayWithoutTintCopiesTheTiles(t *testing.T) {
	library := randomLibrary(t, 4, 5, 1)
	l := small()
	l.Library, l.Tint = library.ID(), 0
	img := laid(t, l, library)
	for i, tile := range l.Tiles {
		for y := range 4 {
			if got, want := img.Pix[img.PixOffset(i*4, y):][:16], library.Tile(int(tile)).Pix[16*y:][:16]; !bytes.Equal(got, want) {
				t.Errorf("cell %d, row %d: got other pixels, want those of tile %d", i, y, tile)
			}
		}
	}
}

// greyLibrary has one tile of even grey.
func greyLibrary(t testing.TB, size int, v uint8) *tiles.Library {
	t.Helper()
	l, err := tiles.New(size, []tiles.Tile{{Name: "grey", Pix: slices.Repeat([]byte{v, v, v, 255}, size*size)}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTintMixesInThePicture(t *testing.T) {
	for _, sub := range []int{1, 3} {
		library := greyLibrary(t, 8, 100)
		l := &Layout{Library: library.ID(), Tint: 40, Tiles: []int32{0},
			Cells: &Cells{Cols: 1, Rows: 1, Sub: sub, Colours: slices.Repeat([]Colour{{200, 0, 100}}, sub*sub)}}
		img := laid(t, l, library)
		for i := 0; i < len(img.Pix); i += 4 {
			if got := [4]uint8(img.Pix[i:]); got != [4]uint8{140, 60, 100, 255} {
				t.Fatalf("pixel %d of %d sub-cells: got %v, want 140, 60, 100, 255", i/4, sub*sub, got)
			}
		}
	}
}

// A slope of the picture becomes a slope in the tile, without steps at the sub-cells, and goes on in the next cell.
func TestTintIsSmooth(t *testing.T) {
	const size = 24
	library := greyLibrary(t, size, 0)
	c := &Cells{Cols: 2, Rows: 1, Sub: 3, Colours: make([]Colour, 18)}
	for y := range 3 {
		for x := range 6 {
			c.Colours[c.at(x, y)] = Colour{uint8(20 + 40*x)}
		}
	}
	img := laid(t, &Layout{Library: library.ID(), Tint: 40, Cells: c, Tiles: []int32{0, 0}}, library)
	for x := 1; x < 2*size; x++ {
		step := int(img.Pix[4*x]) - int(img.Pix[4*x-4])
		if step < 1 || step > 3 { // 40 % of 240 in 48 pixels
			t.Errorf("step from pixel %d to %d: got %d, want 1 to 3", x-1, x, step)
		}
	}
}

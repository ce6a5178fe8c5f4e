package picture

import (
	"image"
	"image/color"
)

// orientation is the EXIF tag 0x0112 (CIPA DC-008, section 4.6.5.1.6): how the
// stored picture has to be turned to stand upright, 1 to 8.
type orientation uint8

const upright orientation = 1

// transposes reports whether rows and columns change places.
func (o orientation) transposes() bool { return o >= 5 }

// flipsX and flipsY report whether the stored columns and rows run backwards,
// looking along the upright axes that the transposition made of them.
func (o orientation) flipsX() bool { return o == 2 || o == 3 || o == 7 || o == 8 }
func (o orientation) flipsY() bool { return o == 3 || o == 4 || o == 6 || o == 7 }

// turned shows an image upright without copying it. Only [Decode] makes one.
type turned struct {
	src image.Image
	o   orientation
}

// turn returns an upright view of src.
func turn(src image.Image, o orientation) image.Image {
	if o == upright {
		return src
	}
	return &turned{src, o}
}

func (t *turned) ColorModel() color.Model { return t.src.ColorModel() }

func (t *turned) Bounds() image.Rectangle {
	size := t.src.Bounds().Size()
	if t.o.transposes() {
		size.X, size.Y = size.Y, size.X
	}
	return image.Rectangle{Max: size}
}

func (t *turned) At(x, y int) color.Color {
	p := t.stored(x, y)
	return t.src.At(p.X, p.Y)
}

func (t *turned) RGBA64At(x, y int) color.RGBA64 {
	p := t.stored(x, y)
	if src, ok := t.src.(image.RGBA64Image); ok {
		return src.RGBA64At(p.X, p.Y)
	}
	r, g, b, a := t.src.At(p.X, p.Y).RGBA()
	return color.RGBA64{R: uint16(r), G: uint16(g), B: uint16(b), A: uint16(a)}
}

func (t *turned) Opaque() bool {
	src, ok := t.src.(interface{ Opaque() bool })
	return ok && src.Opaque()
}

// stored gives the place of an upright pixel in the stored image.
func (t *turned) stored(x, y int) image.Point {
	b := t.src.Bounds()
	if t.o.transposes() {
		x, y = y, x
	}
	if t.o.flipsX() {
		x = b.Dx() - 1 - x
	}
	if t.o.flipsY() {
		y = b.Dy() - 1 - y
	}
	return image.Pt(x, y).Add(b.Min)
}

// storedRect is stored for a rectangle.
func (t *turned) storedRect(r image.Rectangle) image.Rectangle {
	if r.Empty() {
		return image.Rectangle{}
	}
	p, q := t.stored(r.Min.X, r.Min.Y), t.stored(r.Max.X-1, r.Max.Y-1)
	return image.Rect(min(p.X, q.X), min(p.Y, q.Y), max(p.X, q.X)+1, max(p.Y, q.Y)+1)
}

// place returns where element (x, y) of a stored grid of cols×rows is in the upright grid.
func (o orientation) place(x, y, cols, rows int) (int, int) {
	if o.flipsX() {
		x = cols - 1 - x
	}
	if o.flipsY() {
		y = rows - 1 - y
	}
	if o.transposes() {
		x, y = y, x
	}
	return x, y
}

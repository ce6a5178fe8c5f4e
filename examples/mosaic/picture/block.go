package picture

import "image"

// rowReader is row8 or row16.
type rowReader[P pixel] func(img image.Image, x, y int, dst []P)

// readBlock fills dst, row by row, with the pixels of r. A turned image is read
// along its stored rows, because reading along upright rows would touch another cache line
// for each pixel.
func readBlock[P pixel](img image.Image, r image.Rectangle, dst []P, read rowReader[P]) {
	cols := r.Dx()
	t, ok := img.(*turned)
	if !ok {
		for y := range r.Dy() {
			read(img, r.Min.X, r.Min.Y+y, dst[y*cols:(y+1)*cols])
		}
		return
	}
	stored := t.storedRect(r)
	w, h := stored.Dx(), stored.Dy()
	row := make([]P, w)
	for y := range h {
		read(t.src, stored.Min.X, stored.Min.Y+y, row)
		// Places along a stored row lie on a line of the upright block.
		x0, y0 := t.o.place(0, y, w, h)
		x1, y1 := t.o.place(min(1, w-1), y, w, h)
		at, step := y0*cols+x0, (y1-y0)*cols+(x1-x0)
		for _, p := range row {
			dst[at] = p
			at += step
		}
	}
}

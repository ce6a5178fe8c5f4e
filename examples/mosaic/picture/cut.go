package picture

import (
	"fmt"
	"image"
	"io"
)

// Cut writes every slice of a plan, in order, as a PNG that holds exactly the
// pixels of the picture: create opens where slice i goes, and what it opened is
// closed before the next slice. Rows are converted as they are written, so no
// second copy of the picture arises. The first error ends the work.
func Cut(img image.Image, p Plan, create func(i int) (io.WriteCloser, error)) error {
	for i := range p.Slices {
		if err := cutSlice(img, p.Slice(i).Add(img.Bounds().Min), i, create); err != nil {
			return fmt.Errorf("cutting slice %d of %d: %w", i+1, p.Slices, err)
		}
	}
	return nil
}

func cutSlice(img image.Image, r image.Rectangle, i int, create func(i int) (io.WriteCloser, error)) (err error) {
	w, err := create(i)
	if err != nil {
		return err
	}
	defer func() {
		if e := w.Close(); err == nil {
			err = e
		}
	}()
	return Encode(w, img, r, PNG)
}

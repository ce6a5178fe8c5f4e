package picture_test

import (
	"bytes"
	"fmt"
	"io"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// A picture is cut into slices, which could travel to other computers, and put
// together again.
func Example() {
	sample := picture.Sample()
	plan, err := picture.NewPlan(sample.Bounds().Dx(), sample.Bounds().Dy(), 16, 3)
	if err != nil {
		fmt.Println(err)
		return
	}

	slices := make([]buffer, plan.Slices)
	err = picture.Cut(sample, plan, func(i int) (io.WriteCloser, error) { return &slices[i], nil })
	if err != nil {
		fmt.Println(err)
		return
	}

	first, err := picture.Decode(bytes.NewReader(slices[0].Bytes()))
	if err != nil {
		fmt.Println(err)
		return
	}
	grid, err := picture.Cells(first, first.Bounds(), plan.Tile)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("slice 1 of %d has %d×%d cells\n", plan.Slices, grid.Cols, grid.Rows)

	var whole bytes.Buffer
	err = picture.Compose(&whole, picture.JPEG, plan.Size(), plan.Slices, func(i int) (io.ReadCloser, error) {
		return io.NopCloser(&slices[i]), nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	header, err := picture.Inspect(&whole)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("composed a %s of %d×%d pixels\n", header.Format, header.Width, header.Height)
	// Output:
	// slice 1 of 3 has 60×13 cells
	// composed a jpeg of 960×640 pixels
}

// buffer is a bytes.Buffer that can be closed.
type buffer struct{ bytes.Buffer }

func (*buffer) Close() error { return nil }

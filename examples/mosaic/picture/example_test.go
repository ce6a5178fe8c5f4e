package picture_test

import (
	"bytes"
	"fmt"
	"image"
	"io"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// Slices of a picture are written, which could happen on other computers, and composed.
func Example() {
	sample := picture.Sample()
	size := sample.Bounds().Size()
	plan, err := picture.NewPlan(size.X, size.Y, 16, picture.PlanOptions{Slices: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d slices of %d columns and %d rows in all\n", plan.Slices, plan.Cols, plan.Rows)

	slices := make([]bytes.Buffer, plan.Slices)
	for i := range slices {
		first, end := plan.SliceRows(i)
		rows := image.Rect(0, first*plan.Tile, size.X, end*plan.Tile)
		if err := picture.Encode(&slices[i], sample.SubImage(rows)); err != nil {
			fmt.Println(err)
			return
		}
	}

	var whole bytes.Buffer
	err = picture.Compose(&whole, plan.Size(), plan.Slices, func(i int) (io.ReadCloser, error) {
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
	// 3 slices of 60 columns and 40 rows in all
	// composed a png of 960×640 pixels
}

package tiles_test

import (
	"bytes"
	"fmt"

	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// A library is made, sent somewhere, and used to lay one row of cells.
func Example() {
	made, err := tiles.Generate(8)
	if err != nil {
		fmt.Println(err)
		return
	}
	var blob bytes.Buffer
	if err := made.Write(&blob); err != nil {
		fmt.Println(err)
		return
	}

	library, err := tiles.Read(&blob)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the same library:", library.ID() == made.ID())

	row := picture.Grid{Cols: 3, Rows: 1, Means: []picture.Linear{{R: 1}, {G: 1}, {B: 1}}}
	mosaic, err := library.Render(row)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the mosaic has", mosaic.Bounds().Dx(), "×", mosaic.Bounds().Dy(), "pixels")
	// Output:
	// the same library: true
	// the mosaic has 24 × 8 pixels
}

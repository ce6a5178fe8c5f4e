package tiles_test

import (
	"bytes"
	"fmt"

	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// A library is made, and sent somewhere.
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

	fmt.Println("some thousand tiles:", library.Len() > 1000)
	fmt.Println("pixels of a tile:", len(library.Tile(0).Pix)/4)
	// Output:
	// the same library: true
	// some thousand tiles: true
	// pixels of a tile: 64
}

package picture

import (
	"bytes"
	_ "embed"
	"image"
)

// The cat Chelsea, photographed by Stéfan van der Walt and given to the public domain (CC0).
//
//go:embed sample.jpg
var sample []byte

// Sample returns a photograph of a cat to try the program with, 960×640 pixels.
func Sample() *image.RGBA {
	img, err := Decode(bytes.NewReader(sample))
	if err != nil {
		panic(err) // it is part of the program
	}
	return img
}

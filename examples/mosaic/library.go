package main

import (
	"context"

	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// smallLibrary is the number of tiles below which tiles repeat visibly in most mosaics.
const smallLibrary = 200

// library generates the tiles, or makes them from a folder.
func (r *rendering) library(ctx context.Context) (*tiles.Library, error) {
	if r.tiles == "" {
		return tiles.Generate(r.tile)
	}
	library, err := r.fromFolder(ctx)
	if err == nil && library.Len() < smallLibrary {
		r.show.Say("this library is small: a few hundred photographs make a better mosaic")
	}
	return library, err
}

package layout

import (
	"errors"
	"image"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func TestJoiningIsTheInverseOfCutting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cols, rows := rapid.IntRange(1, 9).Draw(t, "cols"), rapid.IntRange(1, 9).Draw(t, "rows")
		sub := rapid.SampledFrom([]int{1, fine}).Draw(t, "sub")
		want := &Layout{Library: "a", Cells: &Cells{Cols: cols, Rows: rows, Sub: sub, Colours: make([]Colour, cols*rows*sub*sub)}, Tiles: make([]int32, cols*rows)}
		for i := range want.Tiles {
			want.Tiles[i] = int32(i)
		}
		for i := range want.Cells.Colours {
			want.Cells.Colours[i] = Colour{uint8(i), uint8(i >> 8), 7}
		}
		var parts []*Layout
		for y := 0; y < rows; {
			end := rapid.IntRange(y+1, rows).Draw(t, "end")
			parts = append(parts, want.Window(image.Rect(0, y, cols, end)))
			y = end
		}
		got, err := Join(parts)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("joined: got %+v, %v; want %+v", got, err, want)
		}
	})
}

func TestPartsOfDifferentLayoutsAreNotJoined(t *testing.T) {
	part := func(library string, cols, rows, sub int) *Layout {
		return &Layout{Library: library, Cells: &Cells{Cols: cols, Rows: rows, Sub: sub}}
	}
	good := part("a", 2, 1, 1)
	for name, parts := range map[string][]*Layout{
		"none":           nil,
		"other width":    {good, part("a", 3, 1, 1)},
		"other library":  {good, part("b", 2, 1, 1)},
		"other subcells": {good, part("a", 2, 1, 3)},
		"too many cells": {good, part("a", 2, MaxCells/2, 1)},
	} {
		if _, err := Join(parts); !errors.Is(err, ErrBadLayout) {
			t.Errorf("%s: got %v, want ErrBadLayout", name, err)
		}
	}
}

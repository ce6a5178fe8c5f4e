package layout

import (
	"encoding/json"
	"errors"
	"image"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestReusePercentAndBack(t *testing.T) {
	for percent := range 101 {
		r := ReusePercent(percent)
		if err := (&Options{Reuse: r}).Validate(); err != nil || r.Percent() != percent {
			t.Errorf("%d per cent: got %d, error %v; want the same percentage", percent, r.Percent(), err)
		}
	}
	if got := Reuse(0).Percent(); got != DefaultReuse.Percent() {
		t.Errorf("zero value: got %d per cent, want the default of %d", got, DefaultReuse.Percent())
	}
}

func TestOptionsOutOfBounds(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Reuse: ReusePercent(-1)}, "reuse"},
		{Options{Reuse: ReusePercent(101)}, "reuse of 101"},
		{Options{Tint: -1}, "tint of -1"},
		{Options{Tint: MaxTint + 1}, "tint of 41"},
	} {
		if err := c.o.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got error %v, want %q", c.o, err, c.want)
		}
	}
	for _, o := range []*Options{nil, {}, {Reuse: Once}, {Reuse: BestMatch, Tint: MaxTint}} {
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: got error %v, want none", o, err)
		}
	}
}

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

func TestReuseTravelsAsAPercentage(t *testing.T) {
	for r, want := range map[Reuse]string{0: "80", Once: "0", 1: "1", BestMatch: "100"} {
		text, err := json.Marshal(r)
		if err != nil || string(text) != want {
			t.Errorf("encoded Reuse(%d): got %s, %v; want %s", r, text, err, want)
		}
		var got Reuse
		if err := json.Unmarshal(text, &got); err != nil || got.Percent() != r.Percent() {
			t.Errorf("decoded %s: got %d, %v; want %d", text, got, err, r)
		}
	}
	for _, text := range []string{"-1", "101"} {
		var o Options
		if err := json.Unmarshal([]byte(text), &o.Reuse); err != nil || o.Validate() == nil {
			t.Errorf("decoded %s: got %d, %v; want one that Validate refuses", text, o.Reuse, err)
		}
	}
	for _, text := range []string{`"5"`, "0.5", "true", "99999999999"} {
		var r Reuse
		if err := json.Unmarshal([]byte(text), &r); err == nil {
			t.Errorf("decoded %s: got %d, want an error", text, r)
		}
	}
}

package layout

import (
	"bytes"
	"errors"
	"image"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// anyLayout draws a layout.
func anyLayout(t *rapid.T) *Layout {
	c := &Cells{Cols: rapid.IntRange(1, 9).Draw(t, "cols"), Rows: rapid.IntRange(1, 9).Draw(t, "rows"), Sub: rapid.SampledFrom([]int{1, 3}).Draw(t, "sub")}
	l := &Layout{Library: rapid.StringMatching("[0-9a-f]{64}").Draw(t, "library"), Tint: rapid.IntRange(0, MaxTint).Draw(t, "tint"), Cells: c}
	seed := rapid.Uint32().Draw(t, "seed")
	for range c.Cols * c.Rows {
		seed = seed*1664525 + 1013904223
		l.Tiles = append(l.Tiles, int32(seed>>8))
		for range c.Sub * c.Sub {
			c.Colours = append(c.Colours, Colour{uint8(seed), uint8(seed >> 8), uint8(seed >> 16)})
		}
	}
	return l
}

func written(t interface{ Fatal(...any) }, l *Layout) []byte {
	var b bytes.Buffer
	if err := l.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestWriteAndRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLayout(t)
		got, err := Read(iotest.HalfReader(bytes.NewReader(written(t, l))))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, l) {
			t.Fatalf("after Write and Read: got %+v, want %+v", got, l)
		}
	})
}

// A layout of more values than are read at a time.
func TestWriteAndReadALargeLayout(t *testing.T) {
	l := &Layout{Library: strings.Repeat("0a", 32), Cells: gradient(301, 200, 3), Tiles: make([]int32, 301*200)}
	for i := range l.Tiles {
		l.Tiles[i] = int32(i)
	}
	if got, err := Read(bytes.NewReader(written(t, l))); err != nil || !reflect.DeepEqual(got, l) {
		t.Fatalf("after Write and Read: got a different layout, error %v; want the same", err)
	}
}

func small() *Layout {
	return &Layout{Library: strings.Repeat("0a", 32), Tint: 7, Cells: &Cells{Cols: 2, Rows: 1, Sub: 1, Colours: []Colour{{1, 2, 3}, {4, 5, 6}}}, Tiles: []int32{3, 4}}
}

func TestReadRefusesWhatIsNoLayout(t *testing.T) {
	good := written(t, small())
	changed := func(old, with string) []byte {
		if !bytes.Contains(good, []byte(old)) {
			t.Fatalf("%s does not contain %s", good, old)
		}
		return bytes.Replace(good, []byte(old), []byte(with), 1)
	}
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"empty":           {nil, "end"},
		"nonsense":        {bytes.Repeat([]byte("nonsense"), 20), "invalid"},
		"version before":  {[]byte("millrace mosaic layout 2\n"), "invalid"},
		"no columns":      {changed(`"Cols":2`, `"Cols":0`), "0×1 cells"},
		"negative rows":   {changed(`"Rows":1`, `"Rows":-1`), "2×-1 cells"},
		"too many cells":  {changed(`"Rows":1`, `"Rows":1000000`), "cells"},
		"overflow":        {changed(`"Cols":2,"Rows":1`, `"Cols":4294967296,"Rows":4294967296`), "cells"},
		"two sub-cells":   {changed(`"Sub":1`, `"Sub":2`), "of 2×2"},
		"tint":            {changed(`"Tint":7`, `"Tint":41`), "41 per cent"},
		"negative tint":   {changed(`"Tint":7`, `"Tint":-1`), "per cent"},
		"tile missing":    {changed("[3,4]", "[3]"), "1 tiles"},
		"negative tile":   {changed("[3,4]", "[3,-4]"), "negative"},
		"tile too large":  {changed("[3,4]", "[3,4294967296]"), "int32"},
		"colours missing": {changed(`"Colours":"AQID`, `"Colours":"`), "3 values"},
		"library escapes": {changed("0a0a0a0a0", "../../../"), "library"},
		"cut":             {good[:len(good)-2], "end"},
		"more":            {append(bytes.Clone(good), 'x'), "after"},
	} {
		_, err := Read(bytes.NewReader(c.file))
		if !errors.Is(err, ErrBadLayout) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want ErrBadLayout and %q", name, err, c.want)
		}
	}
	cable := errors.New("the cable was cut")
	for _, n := range []int{10, len(good) - 1, len(good)} {
		_, err := Read(io.MultiReader(bytes.NewReader(good[:n]), iotest.ErrReader(cable)))
		if !errors.Is(err, cable) || errors.Is(err, ErrBadLayout) {
			t.Errorf("failing after %d bytes: got error %v, want that of the reader and not ErrBadLayout", n, err)
		}
	}
}

// A small file that declares the largest layout costs little memory.
func TestReadAllocatesNoMoreThanTheLargestLayout(t *testing.T) {
	file := bytes.Replace(written(t, small()), []byte(`"Cols":2,"Rows":1`), []byte(`"Cols":1024,"Rows":1024`), 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Read(bytes.NewReader(file))
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrBadLayout) {
		t.Errorf("got error %v, want ErrBadLayout", err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
		t.Errorf("reading a file of %d bytes: got %d bytes allocated, want at most 16 MiB", len(file), took)
	}
}

func TestWriteRefusesWhatReadWould(t *testing.T) {
	for name, change := range map[string]func(*Layout){
		"library": func(l *Layout) { l.Library = "x" }, "long library": func(l *Layout) { l.Library += "0" },
		"tiles": func(l *Layout) { l.Tiles = l.Tiles[:1] }, "colours": func(l *Layout) { l.Cells.Colours = l.Cells.Colours[:1] },
		"tint": func(l *Layout) { l.Tint = -1 }, "no cells": func(l *Layout) { l.Cells.Cols = 0 },
	} {
		l := small()
		change(l)
		if err := l.Write(io.Discard); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}

func FuzzRead(f *testing.F) {
	good := written(f, small())
	f.Add(good)
	f.Add(good[:len(good)-3])
	f.Add(append(bytes.Clone(good), 1))
	f.Add([]byte(nil))
	library := randomLibrary(f, 2, 5, 1)
	f.Fuzz(func(t *testing.T, file []byte) {
		l, err := Read(bytes.NewReader(file))
		if err != nil {
			if !errors.Is(err, ErrBadLayout) {
				t.Fatalf("got error %v, want ErrBadLayout", err)
			}
			return
		}
		if again, err := Read(bytes.NewReader(written(t, l))); err != nil || !reflect.DeepEqual(again, l) {
			t.Fatalf("a layout that was read, written and read again: got another, error %v; want the same", err)
		}
		l.Window(image.Rect(0, 0, l.Cells.Cols, 1))
		l.Library = library.ID()
		_, _ = l.Lay(library) // must not panic
	})
}

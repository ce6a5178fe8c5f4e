package tiles

import (
	"bytes"
	"image"
	"math"
	"testing"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

func TestRenderLaysTheNearestTiles(t *testing.T) {
	l := generated(t, 4)
	g := picture.Grid{Cols: 20, Rows: 20}
	for i := range 400 {
		v := float64(i) / 400
		g.Means = append(g.Means, picture.Linear{R: v, G: v * v, B: 1 - v})
	}
	m, err := l.Render(g)
	if err != nil {
		t.Fatal(err)
	}
	if m.Rect != image.Rect(0, 0, 20*4, 20*4) || !m.Opaque() {
		t.Fatalf("mosaic: got bounds %v, opaque %v; want the size of the grid, opaque", m.Rect, m.Opaque())
	}
	for i, mean := range g.Means {
		want := l.Tile(l.Nearest(LabOf(mean))).Pix
		var got []byte
		for y := range 4 {
			at := m.PixOffset(i%20*4, i/20*4+y)
			got = append(got, m.Pix[at:at+16]...)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("cell %d: got another tile, want the nearest", i)
		}
	}
}

func TestRenderRefuses(t *testing.T) {
	l := smallLibrary(t)
	for name, g := range map[string]picture.Grid{
		"empty":     {},
		"short":     {Cols: 2, Rows: 2, Means: make([]picture.Linear, 3)},
		"negative":  {Cols: -1, Rows: -1, Means: make([]picture.Linear, 1)},
		"overflow":  {Cols: math.MaxInt, Rows: math.MaxInt, Means: make([]picture.Linear, 1)},
		"too large": {Cols: 5000, Rows: 2501, Means: make([]picture.Linear, 5000*2501)},
	} {
		if _, err := l.Render(g); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}

func BenchmarkRender(b *testing.B) {
	l := generated(b, 4)
	g, err := picture.Cells(picture.Sample(), image.Rect(0, 0, 960, 640), 4)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := l.Render(g); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(g.Means)*b.N)/b.Elapsed().Seconds()/1e6, "Mcells/s")
}

func TestRenderWithoutTiles(t *testing.T) {
	if _, err := new(Library).Render(picture.Grid{Cols: 1, Rows: 1, Means: make([]picture.Linear, 1)}); err == nil {
		t.Error("got no error, want one")
	}
}

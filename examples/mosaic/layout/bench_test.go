package layout

import (
	"fmt"
	"image"
	"io"
	"testing"
	"time"

	"golang.org/x/image/draw"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// benchCells are 93,750 cells, as of a photograph of 24 megapixels and tiles of 16.
func benchCells(t testing.TB) *Cells {
	t.Helper()
	src := photo(t, "hugo-issue-12669.jpg")
	dst := image.NewRGBA(image.Rect(0, 0, 375*6, 250*6))
	draw.BiLinear.Scale(dst, dst.Rect, src, src.Bounds(), draw.Src, nil)
	return measured(t, dst, 6)
}

func BenchmarkChoose(b *testing.B) {
	c, library := benchCells(b), cropLibrary(b, 16, 5000)
	for _, percent := range []int{0, 50, 100} {
		b.Run(fmt.Sprint(percent), func(b *testing.B) {
			before := cpu()
			var l *Layout
			for b.Loop() {
				var err error
				if l, err = Choose(b.Context(), c, library, &Options{Reuse: ReusePercent(percent)}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric((cpu()-before).Seconds()/float64(b.N), "cpu-s/op")
			b.ReportMetric(float64(l.Distinct()), "tiles")
		})
	}
}

// BenchmarkQuality makes whole mosaics of photographs: it decodes, measures, chooses, lays and writes. It reports the errors in OKLab, the
// distinct tiles and the processor time. The nearest mean in CIELAB is what the choice is compared with. That is searched without any
// index, so what a program took before is at least its cpu-s/mosaic less its cpu-s/choice.
func BenchmarkQuality(b *testing.B) {
	library := cropLibrary(b, 16, 800)
	for _, in := range inputs {
		for _, way := range []struct {
			name   string
			choose func(c *Cells) *Layout
		}{
			{"nearest-mean", func(c *Cells) *Layout { return baseline(c, library) }},
			{"best-match", func(c *Cells) *Layout { return chosen(b, c, library, BestMatch) }},
			{"default", func(c *Cells) *Layout { return chosen(b, c, library, DefaultReuse) }},
		} {
			b.Run(in.name+"/"+way.name, func(b *testing.B) {
				var l *Layout
				var choice time.Duration
				before := cpu()
				for b.Loop() {
					c := measured(b, photo(b, in.name), in.cell)
					began := cpu()
					l = way.choose(c)
					choice += cpu() - began
					img, err := l.Lay(library)
					if err != nil {
						b.Fatal(err)
					}
					if err := picture.Encode(io.Discard, img, img.Rect, picture.PNG); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(0, "ns/op")
				b.ReportMetric((cpu()-before).Seconds()/float64(b.N), "cpu-s/mosaic")
				b.ReportMetric(choice.Seconds()/float64(b.N), "cpu-s/choice")
				f := judge(b, l, library)
				b.ReportMetric(f.fine, "sub-cell-error")
				b.ReportMetric(f.blurred, "blurred-error")
				b.ReportMetric(float64(f.distinct), "tiles")
			})
		}
	}
}

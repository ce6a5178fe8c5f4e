package report

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// BeginPlot writes the head of an SVG with a title. Its end is "</svg>".
func BeginPlot(b *strings.Builder, width, height int, title string) {
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12" fill="#24292f">`+"\n", width, height)
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	fmt.Fprintf(b, `<text x="20" y="26" font-size="15" font-weight="bold">%s</text>`+"\n", title)
}

const (
	shortest = 100 * time.Microsecond // what is shorter is drawn there
	longest  = 10 * time.Second
)

// TimeAxis is a logarithmic axis of times, between two positions in pixels.
type TimeAxis struct{ Left, Right float64 }

// Position returns where a time is on the axis.
func (a TimeAxis) Position(d time.Duration) float64 {
	d = min(max(d, shortest), longest)
	return a.Left + (a.Right-a.Left)*math.Log(float64(d)/float64(shortest))/math.Log(float64(longest)/float64(shortest))
}

// Draw draws a line from top to bottom for each power of ten, and its text at the height label.
func (a TimeAxis) Draw(b *strings.Builder, top, bottom, label int) {
	for d := shortest; d <= longest; d *= 10 {
		fmt.Fprintf(b, `<line x1="%.1[1]f" y1="%[2]d" x2="%.1[1]f" y2="%[3]d" stroke="#d8dee4"/><text x="%.1[1]f" y="%[4]d" text-anchor="middle">%[5]v</text>`+"\n",
			a.Position(d), top, bottom, label, d)
	}
}

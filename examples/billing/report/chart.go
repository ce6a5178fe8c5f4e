package report

import (
	"cmp"
	"math"
	"slices"
)

const (
	plotHeight  = 220.0 // of the plot of a column chart, in CSS pixels
	plotTop     = 14.0  // above the plot, for the label of the highest line
	labelHeight = 17.0  // of a line of text
)

// columnChart is a column chart. Horizontal places are percentages, so that it is as wide as the page allows
// while its texts keep their size; vertical ones are CSS pixels from the top.
type columnChart struct {
	Caption string
	Height  float64
	Base    float64 // where columns stand
	Ticks   []level
	Columns []column
	Lines   []level
	Under   [3]string // what is at the left, in the middle and at the right
}

// level is a horizontal line with a label.
type level struct {
	Y, LabelY   float64
	Label, Kind string
}

// column is one column.
type column struct {
	X, Width, Y, Height float64
	Title               string
	Alarm               bool
}

// bar is a value for a column.
type bar struct {
	value float64
	title string
	alarm bool
}

// line is a value for a horizontal line.
type line struct {
	value       float64
	label, kind string
}

// columns makes a chart from values, which are not negative. A line that is far above all others is left
// out, so that it does not flatten the rest.
func columns(caption string, bars []bar, lines []line, format func(float64) string, under [3]string) *columnChart {
	const farAbove = 2
	top := 0.0
	for _, b := range bars {
		top = max(top, b.value)
	}
	highest := top
	for _, l := range lines {
		if l.value <= farAbove*top {
			highest = max(highest, l.value)
		}
	}
	step := niceStep(highest / 4)
	scale := step * max(1, math.Ceil(highest/step-1e-9))
	y := func(value float64) float64 { return plotTop + plotHeight*(1-max(0, value)/scale) }
	c := &columnChart{Caption: caption, Height: plotTop + plotHeight + 4, Base: plotTop + plotHeight, Under: under}
	for n := 0; float64(n)*step <= scale*(1+1e-9); n++ {
		value := float64(n) * step
		c.Ticks = append(c.Ticks, level{Y: y(value), LabelY: y(value) + 4, Label: format(value)})
	}
	slot := 100 / float64(max(1, len(bars)))
	for n, b := range bars {
		if b.value <= 0 {
			continue // there is nothing to see
		}
		height := max(1, c.Base-y(b.value))
		c.Columns = append(c.Columns, column{
			X: (float64(n) + 0.11) * slot, Width: 0.78 * slot, Y: c.Base - height, Height: height, Title: b.title, Alarm: b.alarm,
		})
	}
	for _, l := range lines {
		if l.value <= scale {
			c.Lines = append(c.Lines, level{Y: y(l.value), LabelY: y(l.value) + 4, Label: l.label, Kind: l.kind})
		}
	}
	spread(c.Lines, c.Height)
	return c
}

// spread moves labels apart that would overlap, and not below the chart.
func spread(lines []level, bottom float64) {
	slices.SortStableFunc(lines, func(a, b level) int { return cmp.Compare(b.Y, a.Y) }) // from below
	limit := bottom
	for n := range lines {
		lines[n].LabelY = min(lines[n].LabelY, limit)
		limit = lines[n].LabelY - labelHeight
	}
	// The highest of many may have been pushed out at the top: then all move down.
	if n := len(lines); n > 0 && lines[n-1].LabelY < labelHeight-4 {
		limit = labelHeight - 4
		for n := range slices.Backward(lines) {
			lines[n].LabelY = max(lines[n].LabelY, limit)
			limit = lines[n].LabelY + labelHeight
		}
	}
}

// niceStep returns the least of 1, 2, 5, 10, 20 … and their fractions that is not below a value.
func niceStep(value float64) float64 {
	if value <= 0 || math.IsInf(value, 0) || math.IsNaN(value) {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(value)))
	for _, n := range []float64{1, 2, 5} {
		if n*unit >= value*(1-1e-9) {
			return n * unit
		}
	}
	return 10 * unit
}

// share returns a value in per cent of a whole, for the length of a bar.
func share(value, whole float64) float64 {
	if whole <= 0 || value <= 0 {
		return 0
	}
	return min(100, 100*value/whole)
}

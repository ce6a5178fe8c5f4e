package main

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/millrace/millrace/bench/internal/report"
)

// colours are those of the families, in their order.
var colours = []string{"#c0392b", "#8a8f98", "#7d5ba6", "#2f6fb7", "#1f9e89", "#d48a1c", "#4d4d4d"}

func colour(family string) string {
	for i, f := range families {
		if f == family {
			return colours[i]
		}
	}
	return "#000000"
}

// escaped returns text as XML has it.
func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // a Builder does not fail
	return b.String()
}

// The measures of the Pareto picture, in pixels: two columns of panels.
const (
	panelWidth  = 450
	panelHeight = 230
	panelLeft   = 60 // of the axes within a panel
	panelRight  = panelWidth - 20
	panelTop    = 34
	panelBottom = panelHeight - 40
	headHeight  = 96
	leastLate   = 1e-5 // shares below are drawn there
)

// lateHeight returns where a share of late jobs is within a panel: logarithmic.
func lateHeight(share float64) float64 {
	share = min(max(share, leastLate), 1)
	return panelBottom + (panelTop-panelBottom)*math.Log(share/leastLate)/math.Log(1/leastLate)
}

// pareto returns an SVG with a panel for each trace: the late jobs of each rule over its instance-hours.
func pareto(all []compared) string {
	var b strings.Builder
	rows := (len(all) + 1) / 2
	report.BeginPlot(&b, 2*panelWidth, headHeight+rows*panelHeight, "Late jobs and instance-hours of each rule: the best is at the bottom left")
	b.WriteString(`<text x="20" y="46">filled: settings known before; hollow: tuned for the trace afterwards; below the dashed line the SLA holds</text>` + "\n")
	for i, f := range families {
		x, y := 26+220*(i%4), 66+20*(i/4)
		mark(&b, float64(x), float64(y), f, false, f)
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", x+12, y+4, f)
	}
	for i := range all {
		// Traces of one kind and two sizes are side by side.
		column, line := i%2, i/2
		if half := len(all) / 2; len(all)%2 == 0 {
			column, line = i/half, i%half
		}
		fmt.Fprintf(&b, `<g transform="translate(%d,%d)">`+"\n", column*panelWidth, headHeight+line*panelHeight)
		panel(&b, &all[i])
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// mark draws one rule: the agent as a diamond, others as circles.
func mark(b *strings.Builder, x, y float64, family string, hollow bool, title string) {
	fill := colour(family)
	if hollow {
		fill = "none"
	}
	if family == agent {
		fmt.Fprintf(b, `<path d="M%.1f %.1fl7 7l-7 7l-7 -7z" fill="%s" stroke="%s" stroke-width="2"><title>%s</title></path>`+"\n", x, y-7, fill, colour(family), escaped(title))
		return
	}
	fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="4.5" fill="%s" stroke="%s" stroke-width="1.5" fill-opacity="0.8"><title>%s</title></circle>`+"\n", x, y, fill, colour(family), escaped(title))
}

// panel draws one trace.
func panel(b *strings.Builder, c *compared) {
	least, most := math.Inf(1), 0.0
	for i := range c.rows {
		least, most = min(least, c.rows[i].InstanceHours), max(most, c.rows[i].InstanceHours)
	}
	least, most = max(least, 1e-3)*0.9, max(most, 1e-2)*1.1
	x := func(h float64) float64 {
		return panelLeft + (panelRight-panelLeft)*math.Log(max(h, least)/least)/math.Log(most/least)
	}
	fmt.Fprintf(b, `<text x="%d" y="20" font-weight="bold">%s</text>`+"\n", panelLeft, escaped(c.trace.Name))
	for _, share := range []float64{leastLate, 1e-4, 1e-3, 1e-2, 1e-1, 1} {
		y, text := lateHeight(share), fmt.Sprintf("%g %%", 100*share)
		if share == leastLate {
			text = "0"
		}
		fmt.Fprintf(b, `<line x1="%d" y1="%.1[2]f" x2="%[3]d" y2="%.1[2]f" stroke="#d8dee4"/><text x="%[4]d" y="%.1[5]f" text-anchor="end" font-size="10">%[6]s</text>`+"\n",
			panelLeft, y, panelRight, panelLeft-6, y+3, text)
	}
	y := lateHeight(1 - enough)
	fmt.Fprintf(b, `<line x1="%d" y1="%.1[2]f" x2="%[3]d" y2="%.1[2]f" stroke="#24292f" stroke-dasharray="5 4"/>`+"\n", panelLeft, y, panelRight)
	for _, h := range hourTicks(least, most) {
		fmt.Fprintf(b, `<line x1="%.1[1]f" y1="%[2]d" x2="%.1[1]f" y2="%[3]d" stroke="#d8dee4"/><text x="%.1[1]f" y="%[4]d" text-anchor="middle" font-size="10">%[5]g</text>`+"\n",
			x(h), panelTop, panelBottom, panelBottom+14, h)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end" font-size="10">instance-hours</text>`+"\n", panelRight, panelBottom+28)
	for i := len(c.rows) - 1; i >= 0; i-- { // the agent, which is the first, on top
		r := &c.rows[i]
		title := fmt.Sprintf("%s: %s late, %s instance-hours", r.name(), percent(r.LateShare()), hours(r.InstanceHours))
		mark(b, x(r.InstanceHours), lateHeight(r.LateShare()), r.family, r.tuned, title)
	}
}

// hourTicks returns round numbers between two others: 1, 2 or 5 times a power of ten.
func hourTicks(least, most float64) (ticks []float64) {
	for power := math.Pow(10, math.Floor(math.Log10(least))); power <= most; power *= 10 {
		for _, digit := range []float64{1, 2, 5} {
			if h := digit * power; h >= least && h <= most {
				ticks = append(ticks, math.Round(h*1e6)/1e6)
			}
		}
	}
	return ticks
}

// The measures of the timelines, in pixels.
const (
	timeWidth  = 900
	timeHeight = 240
	timeLeft   = 60
	timeRight  = timeWidth - 20
	timeTop    = 30
	timeBottom = timeHeight - 34
	timeHead   = 76
)

// drawn are the traces with timelines, as far as they are there, and the rules in them.
var (
	drawnTraces = []string{"flash crowd, small", "billing day, small", "burst from zero, large"}
	drawnRules  = []string{agent, keda, functions, latency}
)

// timelines returns an SVG of the instances over time that some rules had on some traces: the first three if none of those are there.
func timelines(all []compared) string {
	var chosen []*compared
	for i := range all {
		for _, name := range drawnTraces {
			if all[i].trace.Name == name {
				chosen = append(chosen, &all[i])
			}
		}
	}
	if len(chosen) == 0 {
		for i := range min(len(all), 3) {
			chosen = append(chosen, &all[i])
		}
	}
	var b strings.Builder
	report.BeginPlot(&b, timeWidth, timeHead+len(chosen)*timeHeight, "Instances over time, those included that start")
	b.WriteString(`<text x="20" y="46">grey: what the jobs that come would occupy; each rule with the first of its known settings</text>` + "\n")
	for i, f := range drawnRules {
		fmt.Fprintf(&b, `<line x1="%d" y1="62" x2="%d" y2="62" stroke="%s" stroke-width="2.5"/><text x="%d" y="66">%s</text>`+"\n", 20+210*i, 46+210*i, colour(f), 52+210*i, f)
	}
	for i, c := range chosen {
		fmt.Fprintf(&b, `<g transform="translate(0,%d)">`+"\n", timeHead+i*timeHeight)
		timeline(&b, c)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// busiest returns the part of a trace that is drawn: six hours around its peak, or all of a shorter one.
func (c *compared) busiest() (from, to time.Duration) {
	const part = 6 * time.Hour
	length := c.trace.Length()
	if length <= part {
		return 0, length
	}
	_, peak := c.trace.Peak()
	from = min(max(peak-part/2, 0), length-part)
	return from, from + part
}

func timeline(b *strings.Builder, c *compared) {
	from, to := c.busiest()
	most := 1.0
	var rows []*row
	for _, f := range drawnRules {
		for i := range c.rows {
			if c.rows[i].family == f {
				rows = append(rows, &c.rows[i])
				break
			}
		}
	}
	for _, r := range rows {
		for _, p := range r.Timeline {
			if p.At >= from && p.At <= to {
				most = max(most, float64(p.Instances))
			}
		}
	}
	x := func(at time.Duration) float64 {
		return timeLeft + (timeRight-timeLeft)*(at-from).Seconds()/(to-from).Seconds()
	}
	y := func(n float64) float64 { return timeBottom + (timeTop-timeBottom)*min(n/most, 1) }
	fmt.Fprintf(b, `<text x="%d" y="18" font-weight="bold">%s</text>`+"\n", timeLeft, escaped(c.trace.Name))
	for i := range 5 {
		n := most * float64(i) / 4
		fmt.Fprintf(b, `<line x1="%d" y1="%.1[2]f" x2="%[3]d" y2="%.1[2]f" stroke="#d8dee4"/><text x="%[4]d" y="%.1[5]f" text-anchor="end" font-size="10">%.6[6]g</text>`+"\n", timeLeft, y(n), timeRight, timeLeft-6, y(n)+3, n)
		at := from + time.Duration(i)*(to-from)/4
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle" font-size="10">%s</text>`+"\n", x(at), timeBottom+16, short(at.Round(time.Minute)))
	}
	area(b, c, from, to, x, y)
	for i := len(rows) - 1; i >= 0; i-- { // the agent on top
		r := rows[i]
		fmt.Fprintf(b, `<path fill="none" stroke="%s" stroke-width="1.8" d="`, colour(r.family))
		begun, before := false, 0.0
		for _, p := range r.Timeline {
			n := y(float64(p.Instances))
			switch {
			case p.At < from || p.At > to:
			case !begun:
				fmt.Fprintf(b, "M%.1f %.1f", x(p.At), n)
				begun, before = true, n
			case n != before:
				fmt.Fprintf(b, "H%.1fV%.1f", x(p.At), n)
				before = n
			}
		}
		fmt.Fprintf(b, `H%d"><title>%s</title></path>`+"\n", timeRight, escaped(r.name()))
	}
}

// area draws how many instances the jobs that come would occupy.
func area(b *strings.Builder, c *compared, from, to time.Duration, x func(time.Duration) float64, y func(float64) float64) {
	t := &c.trace
	fmt.Fprintf(b, `<path fill="#e3e6ea" d="M%.1f %.1f`, x(from), y(0))
	every := max(int((to-from)/t.Step)/600, 1)
	for i := int(from / t.Step); i < int(to/t.Step) && i < len(t.Arrivals); i += every {
		handling := t.Handling
		if t.Handlings != nil {
			handling = t.Handlings[i]
		}
		n := t.Arrivals[i] / t.Step.Seconds() * handling.Seconds() / float64(t.Slots)
		fmt.Fprintf(b, "L%.1f %.1f", x(time.Duration(i)*t.Step), y(n))
	}
	fmt.Fprintf(b, `L%.1f %.1fz"/>`+"\n", x(to), y(0))
}

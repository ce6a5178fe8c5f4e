package main

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/millrace/millrace/examples/billing/books"
)

// The picture is four charts above each other, with the seconds of the run from left to right.
const (
	pictureWidth = 900.0
	chartLeft    = 64.0
	chartRight   = 24.0
	chartHeight  = 110.0
	chartGap     = 44.0
	pictureTop   = 16.0
)

// series is a line of a chart.
type series struct {
	name, color string
	stepped     bool
	dots        bool
	x, y        []float64
}

func (s *series) add(x, y float64) { s.x, s.y = append(s.x, x), append(s.y, y) }

// picture draws what was measured, and when the batches came into the books.
func (f *flood) picture(batches []books.Batch, sla time.Duration) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	arrival := series{name: "come", color: "#2563eb"}
	service := series{name: "are done", color: "#16a34a"}
	waiting := series{name: "wait for a worker", color: "#d97706"}
	held := series{name: "are in work", color: "#16a34a"}
	wanted := series{name: "wanted by the agent", color: "#7c3aed", stepped: true}
	running := series{name: "processes, those that drain included", color: "#94a3b8", stepped: true}
	end := 1.0
	for _, m := range f.moments {
		at := m.Sample.At.Sub(f.begun).Seconds()
		end = max(end, at)
		if v, known := m.Sample.Arrival.Get(); known {
			arrival.add(at, v)
		}
		if v, known := m.Sample.Service.Get(); known {
			service.add(at, v)
		}
		if v, known := m.Sample.Visible.Get(); known {
			waiting.add(at, float64(v))
		}
		if v, known := m.Sample.InWork.Get(); known {
			held.add(at, float64(v))
		}
		wanted.add(at, float64(m.Decision.Instances))
		running.add(at, float64(m.workers.Running+m.workers.Draining))
	}
	latency := series{name: "a batch in the books", color: "#dc2626", dots: true}
	for _, b := range batches {
		latency.add(b.Reported.Sub(f.begun).Seconds(), b.Latency().Seconds())
	}
	limit := series{name: fmt.Sprintf("SLA %v", sla), color: "#64748b"}
	limit.add(0, sla.Seconds())
	limit.add(end, sla.Seconds())

	p := &picture{end: end}
	p.chart("items a second", arrival, service)
	p.chart("items", waiting, held)
	p.chart("workers", running, wanted)
	p.chart("seconds from handing over to the books", limit, latency)
	return p.svg()
}

// picture is an SVG in the making.
type picture struct {
	end    float64 // the last second
	charts int
	body   bytes.Buffer
}

func (p *picture) x(second float64) float64 {
	return chartLeft + (pictureWidth-chartLeft-chartRight)*second/p.end
}

// chart adds a chart below the others.
func (p *picture) chart(what string, lines ...series) {
	top := pictureTop + float64(p.charts)*(chartHeight+chartGap) + 18
	p.charts++
	highest := 1.0
	for _, s := range lines {
		for _, y := range s.y {
			highest = max(highest, y)
		}
	}
	step := niceStep(highest / 4)
	highest = step * math.Ceil(highest/step-1e-9)
	y := func(value float64) float64 { return top + chartHeight*(1-value/highest) }
	p.text(chartLeft, top-8, "start", "bold", "#475569", what)
	at := chartLeft + 9*float64(len(what)) + 20
	for _, s := range lines {
		fmt.Fprintf(&p.body, `<rect x="%.1f" y="%.1f" width="14" height="4" fill="%s"/>`+"\n", at, top-14, s.color)
		p.text(at+20, top-8, "start", "normal", "#475569", s.name)
		at += 40 + 7*float64(len(s.name))
	}
	for v := 0.0; v <= highest*(1+1e-9); v += step {
		fmt.Fprintf(&p.body, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="#cbd5e1" stroke-width="1"/>`+"\n", chartLeft, pictureWidth-chartRight, y(v), y(v))
		p.text(chartLeft-8, y(v)+4, "end", "normal", "#64748b", fmt.Sprintf("%g", v))
	}
	for _, s := range lines {
		p.line(&s, y)
	}
	tick := niceStep(p.end / 8)
	for v := 0.0; v <= p.end; v += tick {
		p.text(p.x(v), top+chartHeight+16, "middle", "normal", "#64748b", fmt.Sprintf("%g s", v))
	}
}

func (p *picture) line(s *series, y func(float64) float64) {
	var points []string
	for i := range s.x {
		if s.dots {
			fmt.Fprintf(&p.body, `<circle cx="%.1f" cy="%.1f" r="5" fill="%s"/>`+"\n", p.x(s.x[i]), y(s.y[i]), s.color)
			continue
		}
		if s.stepped && i > 0 {
			points = append(points, fmt.Sprintf("%.1f,%.1f", p.x(s.x[i]), y(s.y[i-1])))
		}
		points = append(points, fmt.Sprintf("%.1f,%.1f", p.x(s.x[i]), y(s.y[i])))
	}
	if len(points) > 0 {
		fmt.Fprintf(&p.body, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), s.color)
	}
}

func (p *picture) text(x, y float64, anchor, weight, color, what string) {
	fmt.Fprintf(&p.body, `<text x="%.1f" y="%.1f" text-anchor="%s" font-weight="%s" fill="%s">%s</text>`+"\n", x, y, anchor, weight, color, what)
}

func (p *picture) svg() []byte {
	height := pictureTop + float64(p.charts)*(chartHeight+chartGap) + 8
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="13" role="img" aria-label="A flood of items: how many come and wait, how many workers there are, and how long batches take">`+"\n",
		pictureWidth, height, pictureWidth, height)
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" fill="#ffffff"/>`+"\n", pictureWidth, height)
	b.Write(p.body.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// niceStep returns the least of 1, 2, 5, 10, 20 … that is not below a value.
func niceStep(value float64) float64 {
	step := 1.0
	for n := 0; step < value; n++ {
		step = []float64{1, 2, 5}[(n+1)%3] * math.Pow(10, math.Floor(float64(n+1)/3))
	}
	return step
}

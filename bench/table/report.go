package main

import (
	"fmt"
	"slices"
	"strings"
)

// table returns the results as Markdown.
func (r *results) table() string {
	var b strings.Builder
	b.WriteString("Entities a second:\n\n| call | entities a call | callers |")
	for _, who := range r.plan.contenders {
		b.WriteString(" " + who.name + " |")
	}
	first := r.plan.contenders[0].name
	for _, who := range r.plan.contenders[1:] {
		fmt.Fprintf(&b, " %s to %s |", first, who.name)
	}
	b.WriteString("\n|---|--:|--:|" + strings.Repeat("--:|", 2*len(r.plan.contenders)-1) + "\n")
	for i, w := range works {
		for _, callers := range r.plan.callers {
			fmt.Fprintf(&b, "| %s | %d | %d |", w.name, w.call, callers)
			own := r.median(cell{first, callers, i})
			for _, who := range r.plan.contenders {
				fmt.Fprintf(&b, " %.0f |", r.median(cell{who.name, callers, i}))
			}
			for _, who := range r.plan.contenders[1:] {
				fmt.Fprintf(&b, " × %.2f |", own/max(r.median(cell{who.name, callers, i}), 1))
			}
			b.WriteString("\n")
		}
	}
	for _, why := range r.absent {
		fmt.Fprintf(&b, "\nLeft out: %s.\n", why)
	}
	if r.many != nil {
		b.WriteString("\n" + r.many.sentences())
	}
	return b.String()
}

// sentences say what was measured of very many entities.
func (m *manyResult) sentences() string {
	of := func(figure func(paged) float64) float64 {
		var all []float64
		for _, one := range m.opened {
			all = append(all, figure(one))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	mebibytes := func(bytes float64) string { return fmt.Sprintf("%.0f MiB", bytes/(1<<20)) }
	opening, paging := of(func(p paged) float64 { return p.Opened.Seconds() }), of(func(p paged) float64 { return p.Paged.Seconds() })
	text := fmt.Sprintf("%d entities of some 300 bytes, inserted in groups by 16 callers in %.0f s, are a file of %s. A process opens it in %.2f s and pages through all of it in %.1f s.",
		m.entities, m.inserted.Seconds(), mebibytes(float64(m.size)), opening, paging)
	most := of(func(p paged) float64 { return float64(p.Most) })
	if most == 0 {
		return text + "\n"
	}
	return text + fmt.Sprintf(" Its memory, without the mapped file, is %s before, %s when the file is open, and %s at most while it pages.\n",
		mebibytes(of(func(p paged) float64 { return float64(p.Before) })), mebibytes(of(func(p paged) float64 { return float64(p.After) })), mebibytes(most))
}

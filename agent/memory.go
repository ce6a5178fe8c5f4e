package agent

import (
	"time"

	"github.com/millrace/millrace/scaling"
)

// memory is the history of one pool, as long as its policy looks back. Only the goroutine of the pool uses it.
type memory struct {
	samples scaling.History
	keep    time.Duration
}

// leastMemory is how long samples are kept at least.
const leastMemory = time.Hour

// forecastMemory is how long they are kept for a forecast: the same time a week ago, and what followed it.
const forecastMemory = 8 * 24 * time.Hour

func newMemory(p scaling.Policy) memory {
	keep := max(2*p.DownAfter, leastMemory)
	if p.Forecast {
		keep = max(keep, forecastMemory)
	}
	return memory{keep: keep}
}

// add adds the newest sample and forgets what is too old.
func (m *memory) add(s scaling.Sample) {
	m.samples = append(m.samples, s)
	old := 0
	for old < len(m.samples) && s.At.Sub(m.samples[old].At) > m.keep {
		old++
	}
	m.samples = m.samples[old:]
}

// last returns the newest sample.
func (m *memory) last() (scaling.Sample, bool) {
	if len(m.samples) == 0 {
		return scaling.Sample{}, false
	}
	return m.samples[len(m.samples)-1], true
}

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

func newMemory(p scaling.Policy) memory {
	if p.Forecast {
		return memory{} // as long as a History keeps them
	}
	return memory{keep: max(2*p.WithDefaults().DownAfter, leastMemory)}
}

// add adds the newest sample, given how much time has passed since the one before in this process, zero for the first, and forgets what
// is too old. If the clock was set back since the one before, the whole history is
// set back with it: how far its samples lie apart is known. If the clock was set forward, or the machine has slept, which looks the same, there
// is a gap.
func (m *memory) add(s scaling.Sample, p passed) {
	if back := p.setBack(); back > 0 {
		for i := range m.samples {
			m.samples[i].At = m.samples[i].At.Add(-back)
		}
	}
	m.restore(s)
	old := 0
	for m.keep > 0 && old < len(m.samples) && s.At.Sub(m.samples[old].At) > m.keep {
		old++
	}
	m.samples = m.samples[:copy(m.samples, m.samples[old:])]
}

func (m *memory) restore(s scaling.Sample) { m.samples.Add(s) }

func (m *memory) last() (scaling.Sample, bool) {
	if len(m.samples) == 0 {
		return scaling.Sample{}, false
	}
	return m.samples[len(m.samples)-1], true
}

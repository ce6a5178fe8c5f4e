package listener

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/units"
)

// Loops bounds how many dequeue loops run.
type Loops struct {
	// Min is how many loops run at least, even while the queue is empty. If Max is not set, no more
	// than Concurrency of them run, because a loop without a slot could not dequeue. Defaults to 1,
	// and to 0 with Options.Wakeups: while events reach the listener every loop then ends when the
	// queue is empty.
	Min int

	// Max is how many loops run at most. Defaults to as many as Concurrency needs,
	// ceil(Concurrency / BatchSize), or to Min if that is more, and adapts when Concurrency
	// changes.
	Max int

	// Pause is how long after a growth no loop ends, so that the number of loops does not oscillate
	// when work comes in bursts. It does not apply while events of Options.Wakeups reach the
	// listener, nor to loops that LoopsByIntake ends. Negative means no pause. Defaults to 30 s.
	Pause time.Duration
}

func (l Loops) check() error {
	if l.Min < 0 || l.Max < 0 {
		return fmt.Errorf("Fetch.Loops %d…%d must be at least 1", l.Min, l.Max)
	}
	if l.Max > 0 && l.Min > l.Max {
		return fmt.Errorf("Fetch.Loops %d…%d: the minimum is above the maximum", l.Min, l.Max)
	}
	return units.Wait("Fetch.Loops.Pause", l.Pause)
}

// changed returns the bounds with the fields replaced that are set in c.
func (l Loops) changed(c Loops) Loops {
	if c.Max != 0 {
		l.Max = c.Max
	}
	if c.Min != 0 {
		l.Min = c.Min
		if l.Max != 0 {
			l.Max = max(l.Max, c.Min)
		}
	}
	if c.Pause != 0 {
		l.Pause = c.Pause
	}
	return l
}

// bounds returns the bounds in force for the requested ones. The request is kept apart from
// them, so that the effect of a low concurrency does not outlast it. least is the default of Min.
func (l Loops) bounds(concurrency, batch, least int) Loops {
	l.Min = max(l.Min, least)
	if l.Max == 0 {
		l.Min = min(l.Min, concurrency)
		l.Max = max((concurrency+batch-1)/batch, l.Min) // enough to fill all slots together
	}
	l.Min = min(l.Min, l.Max)
	if l.Pause == 0 {
		l.Pause = defaultPause
	}
	return l
}

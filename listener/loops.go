package listener

import (
	"fmt"
	"time"
)

// Loops bounds how many dequeue loops run.
type Loops struct {
	// Min is how many loops run at least, also while the queue is empty. Where Max has
	// its default no more than Concurrency of them count: a loop without a slot could not
	// dequeue. Defaults to 1.
	Min int

	// Max is how many loops run at most. Defaults to as many as Concurrency needs,
	// ceil(Concurrency / BatchSize), or Min if that is more, and follows Concurrency when
	// it is changed.
	Max int

	// Pause is how long after a growth no loop ends, so that a queue that fills in
	// bursts does not grow and shrink all the time. Negative means none. Defaults
	// to 30 s.
	Pause time.Duration
}

// check refuses what contradicts itself.
func (l Loops) check() error {
	if l.Min < 0 || l.Max < 0 {
		return fmt.Errorf("loops %d…%d must be at least 1", l.Min, l.Max)
	}
	if l.Max > 0 && l.Min > l.Max {
		return fmt.Errorf("loops %d…%d: the minimum is above the maximum", l.Min, l.Max)
	}
	return nil
}

// changed returns what is asked for with those fields changed that c sets.
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

// bounds returns the bounds in force where these are asked for. What was asked for is kept
// apart from them, so that what a low concurrency makes of it does not outlast it.
func (l Loops) bounds(concurrency, batch int) Loops {
	l.Min = max(l.Min, 1)
	if l.Max == 0 {
		l.Min = min(l.Min, concurrency)
		l.Max = max((concurrency+batch-1)/batch, l.Min) // to fill the slots in one go
	}
	l.Min = min(l.Min, l.Max)
	if l.Pause == 0 {
		l.Pause = defaultPause
	}
	return l
}

package adaptive

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/hook"
)

// Counts are how many handlers ended how, since the limit was made. A handler counts once.
type Counts struct {
	Coped     int64 // succeeded, or rejected or discarded the job: the dependency has answered
	Exhausted int64 // said that the dependency is exhausted
	TimedOut  int64 // took longer than their time-out
	Other     int64 // failed for other reasons, snoozed, panicked, or were interrupted: they say nothing
}

// State describes a limit at one moment.
type State struct {
	Limit   int // how many handlers may run
	Min     int // the lowest that it gets
	Max     int // the highest
	Running int // handlers that run, those included that were given up as stuck
	Held    int // slots that are taken: for these handlers, and for dequeues that have brought no message yet

	Changed time.Time // when the limit last changed or held back; when it was made if it never did
	Why     string    // what that change was and its reason, in a sentence
	Waits   bool      // no handler starts for a moment: the dependency is exhausted at the lowest limit

	Memory Memory // as last read; zero if it is unknown
	Err    error  `json:"-"` // the last failure of Options.Memory, or of another function in the options; nil for none

	Counts Counts
}

// String returns the limit, what is in use, and the last change with its reason, in a line.
func (s State) String() string {
	return fmt.Sprintf("at most %d handlers, %d run; %s", s.Limit, s.Running, s.Why)
}

// State returns what the limit is and why.
func (l *Limit) State() State {
	held := l.pool.State().Held
	l.mu.Lock()
	defer l.mu.Unlock()
	return State{
		Limit: max(l.limit(), l.places), Min: l.options.Min, Max: l.options.Max, Running: l.running, Held: held,
		Changed: l.last.at, Why: l.last.String(), Waits: l.isHeld(), Memory: l.memory.Memory, Err: l.failure, Counts: l.counts,
	}
}

// reason is why the limit has changed.
type reason int

const (
	unchanged reason = iota
	grown
	afterExhausted
	afterTimeout
	afterMemory
	afterFast
	afterSlow
	forProbe
	probed
	held
)

// change is the last change. Its sentence is made when somebody asks.
type change struct {
	why      reason
	at       time.Time
	from, to int
	err      error
	memory   Memory
	slope    float64
	wait     time.Duration
}

// String returns the sentence.
func (c change) String() string {
	step := fmt.Sprintf("%d → %d: ", c.from, c.to)
	switch c.why {
	case grown:
		return step + "handlers succeeded while the limit was used"
	case afterExhausted:
		return step + shortened(c.err)
	case afterTimeout:
		return step + "a handler took longer than its time-out"
	case afterMemory:
		return step + fmt.Sprintf("%s of %s memory are in use, %.0f %%, and at most %.0f %% may be",
			inMiB(c.memory.Used), inMiB(c.memory.Limit), 100*float64(c.memory.Used)/float64(c.memory.Limit), 100*highMemory)
	case afterFast:
		return step + fmt.Sprintf("handlers take %.1f times as long as at half the limit, and up to %.1f times is no overload", c.slope, tolerance)
	case afterSlow:
		return step + fmt.Sprintf("handlers take %.1f times as long as at half the limit, more than %.1f times", c.slope, tolerance)
	case forProbe:
		return step + "half the limit for a moment, to see how long handlers take then"
	case probed:
		return step + "it is known how long handlers take at half the limit"
	case held:
		return fmt.Sprintf("%d, the lowest, and none starts for %v: %s", c.to, c.wait.Round(100*time.Millisecond), shortened(c.err))
	}
	return fmt.Sprintf("%d since the start", c.to)
}

// shortened returns the beginning of an error's text.
func shortened(err error) string {
	const most = 200
	text := fmt.Sprint(err)
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}

func inMiB(bytes int64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }

// failed remembers that a function in the options has failed.
func (l *Limit) failed(name string, f *hook.Failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = fmt.Errorf("the option %s of an adaptive limit panicked: %v", name, f.Value)
}

// Package waiting has the small parts of waiting: for a duration, for a change of a state or a
// signal, and for the next attempt at something that has failed, with pauses that grow and that
// differ between processes.
package waiting

import (
	"context"
	"math/bits"
	"time"
)

// For waits for d, or until done is closed, such as a context's Done, and reports whether d has
// passed. Without a positive d it does not wait, and reports whether done is still open.
func For(d time.Duration, done <-chan struct{}) bool {
	if d <= 0 {
		select {
		case <-done:
			return false
		default:
			return true
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-done:
		return false
	}
}

type handBack struct{}

// WithHandBack returns a context for a request to a queue that shall not wait while it is busy, because
// another queue may take the message.
func WithHandBack(ctx context.Context) context.Context {
	return context.WithValue(ctx, handBack{}, true)
}

// HandsBack reports whether the context is one of [WithHandBack].
func HandsBack(ctx context.Context) bool { return ctx.Value(handBack{}) != nil }

// Jitter returns a number in [0, 1) for the key, such as a message id, and an ordinal. Different
// keys give unrelated numbers. It is a pure function, so that a run can be repeated. All jitter of the library comes from here.
func Jitter(key string, ordinal int) float64 {
	// FNV-1a over the key, then the finalizer of SplitMix64, because with FNV alone the last
	// bytes hardly change the high bits.
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h += uint64(ordinal) * 0x9E3779B97F4A7C15
	h = (h ^ h>>30) * 0xBF58476D1CE4E5B9
	h = (h ^ h>>27) * 0x94D049BB133111EB
	h ^= h >> 31
	return float64(h>>11) / (1 << 53)
}

// Probe decides when something that has failed is tried again: after a pause, by one caller at a
// time. It has no lock of its own. The zero value allows a probe immediately.
type Probe struct {
	due      time.Time // end of the pause
	underway bool
}

// Pause allows no probe before the given time.
func (p *Probe) Pause(until time.Time) { p.due = until }

// Due returns the end of the pause.
func (p *Probe) Due() time.Time { return p.due }

// Possible reports whether a probe may begin: the pause is over, and no other one is under way.
func (p *Probe) Possible(now time.Time) bool { return !p.underway && !now.Before(p.due) }

// Begin begins a probe if one is possible.
func (p *Probe) Begin(now time.Time) bool {
	if !p.Possible(now) {
		return false
	}
	p.underway = true
	return true
}

// End ends the probe that is under way, if there is one, and reports whether there was.
func (p *Probe) End() (was bool) {
	was, p.underway = p.underway, false
	return was
}

// Doubled returns first, doubled so many times, up to most.
func Doubled(first time.Duration, times int, most time.Duration) time.Duration {
	if times >= bits.LeadingZeros64(uint64(first))-1 { // it would overflow
		return most
	}
	return min(first<<times, most)
}

// Change wakes the goroutines that wait for a state to change. The state's lock guards it. The zero
// value is ready for use.
type Change struct{ next chan struct{} }

// Next returns a channel that the next call of Announce closes.
func (c *Change) Next() <-chan struct{} {
	if c.next == nil {
		c.next = make(chan struct{})
	}
	return c.next
}

// Announce wakes all that wait.
func (c *Change) Announce() {
	if c.next != nil {
		close(c.next)
		c.next = nil
	}
}

// ForChange waits until d has passed, or changed or done is ready. Without a positive d it waits only
// for the other two.
func ForChange(d time.Duration, changed, done <-chan struct{}) {
	var over <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-over:
	case <-changed:
	case <-done:
	}
}

// Signal sends v on c, or drops it if nothing receives and the buffer is full. The channel must
// not be closed. Its main use is a channel with a buffer of one: when a signal is pending, another one adds nothing.
func Signal[T any](c chan<- T, v T) {
	select {
	case c <- v:
	default:
	}
}

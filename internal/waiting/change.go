package waiting

import "time"

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

// Package waiting has the small parts of waiting: for a duration, for a change of a state or a
// signal, and for the next attempt at something that has failed, with pauses that grow and that
// differ between processes.
package waiting

import "time"

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

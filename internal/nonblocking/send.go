// Package nonblocking sends on channels without waiting. Its main use is a channel with a buffer
// of one that says "look again": when a signal is pending, another one adds nothing.
package nonblocking

// Send sends v on c, or drops it if nothing receives and the buffer is full. The channel must
// not be closed.
func Send[T any](c chan<- T, v T) {
	select {
	case c <- v:
	default:
	}
}

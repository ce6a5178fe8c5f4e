package waiting

// Signal sends v on c, or drops it if nothing receives and the buffer is full. The channel must
// not be closed. Its main use is a channel with a buffer of one: when a signal is pending, another one adds nothing.
func Signal[T any](c chan<- T, v T) {
	select {
	case c <- v:
	default:
	}
}

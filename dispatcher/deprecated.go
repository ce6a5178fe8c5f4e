package dispatcher

// Each is the former name of [EachItem].
//
// Deprecated: Use [EachItem]. The next release removes Each.
//
//go:fix inline
func Each[T any](h Handler[T], concurrency int) Handler[T] { return EachItem(h, concurrency) }

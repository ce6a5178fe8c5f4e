package dispatcher

import "context"

// All returns a handler that gives every message to each of the handlers, one after
// the other, and answers for them together: poison if one says so, else the first
// error or retry, else a snooze, else a discard if all that did not succeed say so,
// else nil. A retry repeats them all, so each must be idempotent (L-08). Without a
// handler it succeeds.
func All[T any](hs ...Handler[T]) Handler[T] {
	return func(ctx context.Context, m *Message[T]) error {
		var worst error
		for _, h := range hs {
			if err := h(ctx, m); precedence(err) > precedence(worst) {
				worst = err
			}
		}
		return worst
	}
}

// rank orders results by how much they ask for.
func precedence(err error) int {
	if err == nil {
		return 0
	}
	return explicitResult(err).precedence()
}

// Chain wraps a handler in middleware: the first is the outermost.
func Chain[T any](h Handler[T], ms ...Middleware[T]) Handler[T] {
	for i := len(ms) - 1; i >= 0; i-- {
		h = ms[i](h)
	}
	return h
}

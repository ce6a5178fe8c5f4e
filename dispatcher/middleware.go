package dispatcher

import "context"

// All returns a handler that calls each of the handlers in turn with the same message and
// combines their results: poison if any asks for it, else the first error or retry, else a
// snooze, else a discard if every handler that did not succeed discards, else nil. A retry runs
// all of them again, so each must be idempotent. All of no handlers succeeds.
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

// precedence orders results by how much they ask for.
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

// Middleware wraps a handler, for logging, tracing, limits and the like.
type Middleware[T any] func(Handler[T]) Handler[T]

// Interceptor is middleware that does not depend on the type of the jobs, so that one serves
// every listener of a program: for logging, tracing, limits and authentication. It calls next,
// which runs the handler, with ctx or a context derived from it, and returns next's error or
// another. It may skip next, and then returns [Postpone] if the job should come again, but must not
// call it twice. It must be safe for concurrent use.
// [ResultOf] tells what an error asks for.
type Interceptor func(ctx context.Context, d Delivery, next func(context.Context) error) error

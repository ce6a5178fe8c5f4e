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

// Middleware wraps a handler, for logging, tracing, limits and the like.
type Middleware[T any] func(Handler[T]) Handler[T]

// Interceptor is middleware that does not depend on the type of the jobs, so that one can
// serve every listener of a program: for logging, tracing, limits, authentication and the
// like. It calls next, which runs the handler, with ctx or one made from it, and returns
// its error or another. It may call next not at all, but not twice. It is called from many
// goroutines at once. [ResultOf] tells what an error asks for.
type Interceptor func(ctx context.Context, d Delivery, next func(context.Context) error) error

// intercepted returns the handler behind the interceptors, the first of which is the
// outermost.
func intercepted[T any](h Handler[T], is []Interceptor) Handler[T] {
	for i := len(is) - 1; i >= 0; i-- {
		intercept, inner := is[i], h
		h = func(ctx context.Context, m *Message[T]) error {
			return intercept(ctx, m.described(), func(ctx context.Context) error { return inner(ctx, m) })
		}
	}
	return h
}

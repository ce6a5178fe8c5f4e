package dispatcher

import "context"

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

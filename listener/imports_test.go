package listener_test

import (
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// A program that sets every option, has every hook and reads every error needs to import only
// this package and one queue, and package codec for bodies that are not JSON. This file is such
// a program.
func TestAProgramImportsThisPackageAndOneQueue(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "imports_test.go", nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	const ours = `"github.com/millrace/millrace/`
	for _, i := range file.Imports {
		name, is := strings.CutPrefix(i.Path.Value, ours)
		if is && !slices.Contains([]string{`listener"`, `queue"`, `queue/localqueue"`}, name) {
			t.Errorf("got an import of %s, want only listener, queue and queue/localqueue", i.Path.Value)
		}
	}
	type job struct{ N int }
	o := &listener.Options[job]{
		Create: true, Concurrency: 8, Fetch: listener.FetchOptions{Loops: listener.Loops{Max: 2},
			Idle:              listener.Idle{Max: time.Minute},
			QueueWorkDetected: func(l listener.Load) int { return int(l.Depth) }},
		Lease:      listener.LeaseOptions{Visibility: listener.FixedVisibility(time.Minute)},
		TimeoutFor: func(m *listener.Message[job]) time.Duration { return time.Duration(m.Body.N) },
		RetryDelay: func(attempt int, _ error) time.Duration { return listener.RetryCurve(attempt) },
		Poison:     listener.PoisonPolicy{MaxAttempts: 3},
		Interceptors: []listener.Interceptor{func(ctx context.Context, d listener.Delivery, next func(context.Context) error) error {
			err := next(ctx)
			if r := listener.ResultOf(err); r.Outcome == listener.Snoozed {
				fmt.Println(d.ID, r.Delay)
			}
			return err
		}},
		OnError: readError,
	}
	o.Lease.Visibility = listener.Visibility{Min: time.Minute}
	o.Observer.Polled = func(listener.Poll) {}
	o.Observer.Received = func([]queue.Message) {}
	o.Observer.Scaled = func(queue.Name, int) {}
	o.Observer.Started = func(listener.Delivery) {}
	o.Observer.Finished = func(listener.Delivery, time.Duration, error) {}
	o.Observer.Renewed = func(listener.Delivery, time.Duration, error) {}
	o.Observer.Lost = func(_ listener.Delivery, err error) { _ = errors.Is(err, listener.ErrLeaseLost) }
	o.Observer.Settled = func(_ listener.Delivery, o listener.Outcome, _ time.Duration) { _ = o == listener.Deleted }
	o.Observer.Poisoned = func(listener.Delivery, listener.PoisonReason, error) {}
	one := listener.Chain(func(ctx context.Context, _ *listener.Message[job]) error {
		if errors.Is(context.Cause(ctx), listener.ErrStopping) {
			return listener.Retry(0, nil)
		}
		return nil
	}, func(next listener.Handler[job]) listener.Handler[job] { return next })
	many := listener.Batch(func(context.Context, []*listener.Message[job]) []error { return nil }, 8, 0)
	l := listener.New(must(localqueue.New(nil)).Queue(queue.Name{Account: "a", Queue: "jobs"}), listener.All(one, many), o)
	if err := l.Configure(listener.Settings{Idle: listener.Idle{Max: time.Second}}); err == nil {
		t.Error("Configure of a listener that does not run: got no error, want one")
	}
	if st := l.State(); st.Phase != listener.Waiting {
		t.Errorf("Phase: got %v, want %v", st.Phase, listener.Waiting)
	}
}

// readError reads the errors that OnError receives.
func readError(err error) {
	var delivery *listener.DeliveryError
	var panicked *listener.PanicError
	var stuck *listener.StuckError
	var hook *listener.HookError
	var setup *listener.SetupError
	var abandoned *listener.AbandonedError
	switch {
	case errors.As(err, &delivery):
		slog.Error(string(delivery.Reason))
	case errors.As(err, &panicked), errors.As(err, &stuck), errors.As(err, &hook):
	case errors.As(err, &setup), errors.As(err, &abandoned):
	}
}

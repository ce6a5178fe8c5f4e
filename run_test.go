package millrace

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m)
}

// runner is a Runner with scripted behaviour.
type runner struct {
	run    func(ctx context.Context, halted <-chan struct{}) error
	halted chan struct{}
}

func newRunner(run func(ctx context.Context, halted <-chan struct{}) error) *runner {
	return &runner{run: run, halted: make(chan struct{})}
}

func (r *runner) Run(ctx context.Context) error { return r.run(ctx, r.halted) }
func (r *runner) Halt()                         { close(r.halted) }

func untilStopped(ctx context.Context, _ <-chan struct{}) error { <-ctx.Done(); return nil }
func untilHalted(ctx context.Context, halted <-chan struct{}) error {
	<-ctx.Done()
	<-halted
	return nil
}

func TestTheFirstSignalDrainsAndTheSecondHalts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		enough := make(chan struct{})
		done := make(chan error)
		go func() {
			done <- run(t.Context(), signals, func() { close(enough) }, group{newRunner(untilStopped), newRunner(untilHalted)})
		}()
		synctest.Wait()
		signals <- os.Interrupt
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("Run returned while a runner drains")
		case <-enough:
			t.Fatal("the second signal would not count")
		default:
		}
		signals <- syscall.SIGTERM
		if err := <-done; err != nil {
			t.Error(err)
		}
		<-enough // a third signal has its usual effect
	})
}

func TestOneFailureStopsTheOthersAndIsReported(t *testing.T) {
	broken := errors.New("no such queue")
	err := Run(t.Context(),
		newRunner(untilStopped),
		newRunner(func(context.Context, <-chan struct{}) error { return broken }),
	)
	if !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestTheEndOfTheContextDrains(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, newRunner(untilStopped), newRunner(untilStopped)); err != nil {
		t.Error(err)
	}
}

func TestNothingToRunIsAnError(t *testing.T) {
	if err := Run(t.Context()); err == nil || !strings.Contains(err.Error(), "nothing to run") {
		t.Errorf("got %v", err)
	}
}

// If a runner panics or ends its goroutine the error says so, and the others drain.
func TestARunnerThatDoesNotReturnStopsTheOthers(t *testing.T) {
	for name, fail := range map[string]func(){"panicked: the runner broke": func() { panic("the runner broke") }, "runtime.Goexit": runtime.Goexit} {
		drained := false
		err := Run(t.Context(),
			newRunner(func(ctx context.Context, _ <-chan struct{}) error {
				<-ctx.Done()
				drained = true
				return nil
			}),
			newRunner(func(context.Context, <-chan struct{}) error { fail(); return nil }),
		)
		if err == nil || !drained || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "run_test.go") {
			t.Errorf("%s: drained %v, got %v", name, drained, err)
		}
	}
}

// hasty is a runner whose Halt fails.
type hasty struct {
	*runner
	fail func()
}

func (h hasty) Halt() { h.fail() }

// A Halt that does not return does not keep other runners from being halted.
func TestAHaltThatFailsHaltsTheOthers(t *testing.T) {
	for name, fail := range map[string]func(){"panicked: the halt broke": func() { panic("the halt broke") }, "runtime.Goexit": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			signals := make(chan os.Signal, 2)
			signals <- os.Interrupt
			signals <- os.Interrupt
			err := run(t.Context(), signals, func() {}, group{group{hasty{newRunner(untilStopped), fail}}, newRunner(untilHalted)})
			if err == nil || !strings.Contains(err.Error(), "Halt of millrace.hasty") || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: got %v", name, err)
			}
		})
	}
}

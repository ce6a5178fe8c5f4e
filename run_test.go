package millrace

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/azuritetest"
)

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(stopping{m})
}

// stopping runs the tests and then stops the Azurite that they may have started.
type stopping struct{ m *testing.M }

func (s stopping) Run() int {
	code := s.m.Run()
	azuritetest.Stop()
	return code
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
		ignored := make(chan struct{}) // closed when no further signal counts
		done := make(chan error)
		go func() {
			done <- run(t.Context(), signals, func() { close(ignored) }, group{newRunner(untilStopped), newRunner(untilHalted)})
		}()
		synctest.Wait()
		signals <- os.Interrupt
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("Run returned while a runner drains")
		case <-ignored:
			t.Fatal("signals are ignored before the second one")
		default:
		}
		signals <- syscall.SIGTERM
		if err := <-done; err != nil {
			t.Error(err)
		}
		<-ignored // a third signal has its usual effect
	})
}

func TestOneFailureStopsTheOthersAndIsReported(t *testing.T) {
	broken := errors.New("no such queue")
	err := Run(t.Context(),
		newRunner(untilStopped),
		newRunner(func(context.Context, <-chan struct{}) error { return broken }),
	)
	if !errors.Is(err, broken) {
		t.Errorf("got error %v, want %v", err, broken)
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
		t.Errorf(`got error %v, want "nothing to run"`, err)
	}
}

// If a runner panics, the others drain and the error has its stack.
func TestARunnerThatPanicsStopsTheOthers(t *testing.T) {
	const want = "panicked: the runner broke"
	for name, run := range map[string]func(context.Context, ...Runner) error{"Run": Run, "RunOrdered": RunOrdered} {
		drained := false
		err := run(t.Context(),
			newRunner(func(ctx context.Context, _ <-chan struct{}) error {
				<-ctx.Done()
				drained = true
				return nil
			}),
			newRunner(func(context.Context, <-chan struct{}) error { panic("the runner broke") }),
		)
		if !drained {
			t.Errorf("%s: the other runner did not drain", name)
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "run_test.go") {
			t.Errorf("%s: got error %v, want %q with the stack", name, err, want)
		}
	}
}

// failingHalt is a runner with a Halt that panics.
type failingHalt struct{ *runner }

func (failingHalt) Halt() { panic("the halt broke") }

func TestAHaltThatPanicsHaltsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		signals <- os.Interrupt
		signals <- os.Interrupt
		runners := group{group{failingHalt{newRunner(untilStopped)}}, newRunner(untilHalted)}
		err := run(t.Context(), signals, func() {}, runners)
		const want = "Halt of millrace.failingHalt panicked: the halt broke"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	})
}

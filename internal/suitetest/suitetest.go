// Package suitetest says how long tests may take, polls, and runs conformance suites: for their packages, inside an
// example, and, if they must fail, in a process of their own.
package suitetest

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Long reports whether tests run in their long form, for which .ci/run sets MILLRACE_LONG. Without it they
// play fewer worlds, so that go test ./... stays short.
func Long() bool { return os.Getenv("MILLRACE_LONG") != "" && !testing.Short() }

// Size returns how large a test is: usual, or long in the long form.
func Size(usual, long int) int {
	if Long() {
		return long
	}
	return usual
}

// OneProcessor makes the tests of a package run on one processor. TestMain calls it if most of them play
// bubbles: the goroutines of a bubble take turns, and on several processors they take up to twice the time.
// Benchmarks, the long form, and a run with GOMAXPROCS in its environment keep all processors.
func OneProcessor() {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" && os.Getenv("GOMAXPROCS") == "" && os.Getenv("MILLRACE_LONG") == "" {
		runtime.GOMAXPROCS(1)
	}
}

// Checks limits the property tests of package rapid to n draws in this test, unless it runs in its long form
// or the command line has -rapid.checks. The test must not be parallel.
func Checks(t testing.TB, n int) {
	t.Helper()
	checks := flag.Lookup("rapid.checks")
	before := checks.Value.String()
	if Long() || before != checks.DefValue {
		return
	}
	set := func(to string) {
		if err := checks.Value.Set(to); err != nil {
			t.Fatal(err)
		}
	}
	set(strconv.Itoa(n))
	t.Cleanup(func() { set(before) })
}

// Run runs a part of a suite: in a bubble, or in parallel with the others.
func Run(t *testing.T, name string, bubble bool, part func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		if bubble {
			synctest.Test(t, part)
			return
		}
		t.Parallel()
		part(t)
	})
}

// Poll asks again after each pause until something holds. It reports false if that takes too long.
func Poll(timeout, pause time.Duration, holds func() bool) bool {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		}
	}
	return true
}

// EndedContext is a context that has ended.
type EndedContext struct {
	context.Context
	Errors []error // what an error of a call with it must match
}

// EndedContexts returns contexts that have ended in every way, by names for the ways.
func EndedContexts(parent context.Context) map[string]EndedContext {
	why := errors.New("the worker stops")
	ended := func(err, cause error) EndedContext {
		ctx, cancel := context.WithCancelCause(parent)
		if errors.Is(err, context.DeadlineExceeded) {
			var release context.CancelFunc
			ctx, release = context.WithDeadlineCause(parent, time.Now().Add(-time.Second), cause)
			release()
		}
		cancel(cause)
		return EndedContext{ctx, []error{err, context.Cause(ctx)}}
	}
	return map[string]EndedContext{
		"cancelled":              ended(context.Canceled, nil),
		"cancelled with a cause": ended(context.Canceled, why),
		"past its deadline":      ended(context.DeadlineExceeded, nil),
		"past one with a cause":  ended(context.DeadlineExceeded, why),
	}
}

// EndDuring calls n times, each time with a context that another goroutine cancels meanwhile. It
// returns the errors of the calls that failed, and what they must match.
func EndDuring(parent context.Context, n int, call func(ctx context.Context) error) (failed []error, ended EndedContext) {
	why := errors.New("the worker stops")
	for range n {
		ctx, cancel := context.WithCancelCause(parent)
		go cancel(why)
		if err := call(ctx); err != nil {
			failed = append(failed, err)
		}
		cancel(why)
	}
	return failed, EndedContext{Errors: []error{context.Canceled, why}}
}

// Passes runs a test inside an example, which has no *testing.T, and reports whether it passed.
// A test that passes prints nothing, even with -v, because the output of an example is compared.
func Passes(test func(*testing.T)) bool {
	verbose := flag.Lookup("test.v").Value
	before := verbose.String()
	if err := verbose.Set("false"); err != nil {
		panic(err)
	}
	defer func() {
		if err := verbose.Set(before); err != nil {
			panic(err)
		}
	}()
	all := func(_, _ string) (bool, error) { return true, nil } // -run chose the example
	return testing.RunTests(all, []testing.InternalTest{{Name: "Test", F: test}})
}

// Defect is what the test TestDefective of a package must find.
type Defect struct {
	Variable string // the environment variable by which TestDefective learns of it
	Name     string // what is wrong
	Found    string // the parts of the suite of which each must fail, with spaces between them
}

// MustBeFound runs TestDefective of this test binary in a process of its own, and fails unless the
// suite fails there in each part that must find the defect.
func (d Defect) MustBeFound(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	parts := strings.Fields(d.Found)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDefective$/^("+strings.Join(parts, "|")+")$", "-rapid.nofailfile")
	cmd.Env = append(os.Environ(), d.Variable+"="+d.Name+d.Found)
	out, err := cmd.CombinedOutput()
	for _, part := range parts {
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(string(out), "--- FAIL: TestDefective/"+part+" ") {
			t.Errorf("suite with the defect: got %v, want a failure of %s\n%s", err, part, out)
		}
	}
	if len(parts) == 0 {
		t.Error("no part of the suite is to find the defect")
	}
}

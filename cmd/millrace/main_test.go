package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
)

// programVariable, if set, makes the test binary run the command.
const programVariable = "MILLRACE_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(workerVariable) != "" {
		runWorker()
	}
	if os.Getenv(programVariable) != "" {
		main()
	}
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() == "" {
		flag.Set("test.parallel", "16") // tests against servers spend most of their time waiting
	}
	code := m.Run()
	azuritetest.Stop()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// result is the outcome of a command line.
type result struct {
	status    int
	out, errs string
}

// invocation is the environment of a call of the program. The zero value has an empty standard input,
// no terminal and no environment.
type invocation struct {
	in          string
	interactive bool
	env         map[string]string
}

// call runs the program in this process.
func (v invocation) call(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs strings.Builder
	c := &console{in: strings.NewReader(v.in), out: &out, err: &errs, interactive: v.interactive, getenv: func(name string) string { return v.env[name] }}
	status := c.command(t.Context(), args)
	return result{status, out.String(), errs.String()}
}

// ok calls the program, which must succeed, and returns its output.
func (v invocation) ok(t *testing.T, args ...string) string {
	t.Helper()
	r := v.call(t, args...)
	if r.status != exitOK {
		t.Fatalf("%q: got status %d, want 0: %s", args, r.status, r.errs)
	}
	return r.out
}

// fails calls the program, which must end with the status, without output, and with one line of
// error that contains all the texts.
func (v invocation) fails(t *testing.T, status int, want []string, args ...string) {
	t.Helper()
	r := v.call(t, args...)
	if r.status != status || r.out != "" || !strings.HasPrefix(r.errs, "millrace: ") || strings.Count(r.errs, "\n") != 1 {
		t.Errorf("%q: got %+v, want status %d and one line of error", args, r, status)
	}
	for _, one := range want {
		if !strings.Contains(r.errs, one) {
			t.Errorf("%q: got the error %q, want %q in it", args, r.errs, one)
		}
	}
}

// accounts runs the test on an account of our server, and on one of Azurite if it is installed.
// Other tests may have queues in both.
func accounts(t *testing.T, test func(t *testing.T, v invocation)) {
	t.Run("millrace", func(t *testing.T) {
		t.Parallel()
		test(t, on(startServer(t)))
	})
	t.Run("azurite", func(t *testing.T) {
		t.Parallel()
		test(t, on(azuritetest.ConnectionString(t)))
	})
}

// startServer starts a server and returns its location.
func startServer(t *testing.T) string {
	t.Helper()
	e, err := must(emulator.New(nil, nil)).Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e.ConnectionString()
}

// on returns an invocation whose default account is that of the location.
func on(location string) invocation {
	return invocation{env: map[string]string{accountVariable: location}}
}

// withInput returns the invocation with another standard input.
func (v invocation) withInput(in string) invocation {
	v.in = in
	return v
}

var names struct {
	last atomic.Int64
	salt atomic.Uint32
}

// newQueueName returns an unused queue name, for an account that tests share.
func newQueueName(t *testing.T, v invocation) string {
	t.Helper()
	names.salt.CompareAndSwap(0, rand.Uint32())
	name := fmt.Sprintf("cli-%08x-%d", names.salt.Load(), names.last.Add(1))
	t.Cleanup(func() {
		for _, q := range []queue.Manager{v.open(t, name), v.open(t, name+"-poison")} {
			_ = q.Drop(context.WithoutCancel(t.Context())) // it may not exist
		}
	})
	return name
}

// createQueue creates a queue with a new name and returns the name.
func createQueue(t *testing.T, v invocation) string {
	t.Helper()
	name := newQueueName(t, v)
	v.ok(t, "create", name)
	return name
}

// open opens a queue as programs do.
func (v invocation) open(t *testing.T, name string) queue.Manager {
	t.Helper()
	q, err := azurequeue.Open(v.env[accountVariable], name, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

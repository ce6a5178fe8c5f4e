package main

import (
	"context"
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
	"github.com/millrace/millrace/queue/localqueue"
)

// programVariable makes the test binary the command.
const programVariable = "MILLRACE_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
	}
	code := m.Run()
	azuritetest.Stop()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// result is what a command line came to.
type result struct {
	status    int
	out, errs string
}

// invocation is the program as a test calls it. The zero value has an empty standard input,
// no terminal and no environment.
type invocation struct {
	in    string
	typed bool
	env   map[string]string
}

// call runs the program in this process.
func (v invocation) call(t *testing.T, args ...string) result {
	t.Helper()
	var out, errs strings.Builder
	c := &console{in: strings.NewReader(v.in), out: &out, err: &errs, interactive: v.typed, getenv: func(name string) string { return v.env[name] }}
	status := c.command(t.Context(), args)
	return result{status, out.String(), errs.String()}
}

// ok is call for what must succeed. It returns the output.
func (v invocation) ok(t *testing.T, args ...string) string {
	t.Helper()
	r := v.call(t, args...)
	if r.status != exitOK {
		t.Fatalf("%q ended with %d: %s", args, r.status, r.errs)
	}
	return r.out
}

// fails is call for what must end with a status, an error in one line that says all of
// these, and no output.
func (v invocation) fails(t *testing.T, status int, says []string, args ...string) {
	t.Helper()
	r := v.call(t, args...)
	if r.status != status || r.out != "" || !strings.HasPrefix(r.errs, "millrace: ") || strings.Count(r.errs, "\n") != 1 {
		t.Errorf("%q: %+v, want the status %d and one line", args, r, status)
	}
	for _, one := range says {
		if !strings.Contains(r.errs, one) {
			t.Errorf("%q: it says %q, and not %q", args, r.errs, one)
		}
	}
}

// accounts has the test on an account of our server, and on one of Azurite where it is
// installed. Both may hold queues of others.
func accounts(t *testing.T, test func(t *testing.T, v invocation)) {
	t.Run("millrace", func(t *testing.T) {
		t.Parallel()
		test(t, on(local(t)))
	})
	t.Run("azurite", func(t *testing.T) {
		t.Parallel()
		test(t, on(azuritetest.ConnectionString(t)))
	})
}

// local starts a server of ours and returns where it is.
func local(t *testing.T) string {
	t.Helper()
	e, err := emulator.New(localqueue.New(nil), nil).Start("")
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

// on is an invocation on the account at a location.
func on(location string) invocation {
	return invocation{env: map[string]string{accountVariable: location}}
}

// reads is the invocation with another standard input.
func (v invocation) reads(in string) invocation {
	v.in = in
	return v
}

var names struct {
	last atomic.Int64
	salt atomic.Uint32
}

// fresh returns a name that no queue has yet, of an account that tests share.
func fresh(t *testing.T, v invocation) string {
	t.Helper()
	names.salt.CompareAndSwap(0, rand.Uint32())
	name := fmt.Sprintf("cli-%08x-%d", names.salt.Load(), names.last.Add(1))
	t.Cleanup(func() {
		for _, q := range []queue.Manager{v.open(t, name), v.open(t, name+"-poison")} {
			_ = q.Drop(context.WithoutCancel(t.Context())) // it may not be there
		}
	})
	return name
}

// made is a queue that was created.
func made(t *testing.T, v invocation) string {
	t.Helper()
	name := fresh(t, v)
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

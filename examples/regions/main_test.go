package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/emulator"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m)
}

// output is what a program has printed so far.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer  // guarded by mu
	changed chan struct{} // closed and replaced at every write; guarded by mu
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.text.Write(p)
}

func (o *output) state() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String(), o.changed
}

// waitFor waits until the program has printed the text n times.
func (o *output) waitFor(t *testing.T, text string, n int) {
	t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		said, changed := o.state()
		if strings.Count(said, text) >= n {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("%q was not printed %d times:\n%s", text, n, said)
		}
	}
}

var balance = regexp.MustCompile(`(\d+) orders were accepted, and all of them were handled
.* (\d+) sends failed; (\d+) of their orders were handled anyway, .*
.* (\d+) orders were diverted to the east, and (\d+) were moved back.*
.* (\d+) orders were handled a second time.*
.* to (\d+) sends, and to (\d+) moves back`)

func TestThePlayLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newOutput()
		if err := run(t.Context(), nil, out); err != nil {
			t.Fatal(err)
		}
		said, _ := out.state()
		found := balance.FindStringSubmatch(said)
		if found == nil {
			t.Fatalf("got no balance:\n%s", said)
		}
		n := make([]int, len(found))
		for i, text := range found[1:] {
			if _, err := fmt.Sscan(text, &n[i]); err != nil {
				t.Fatal(err)
			}
		}
		accepted, failed, anyway, diverted, home, again, doubt := n[0], n[1], n[2], n[3], n[4], n[5], n[6]+n[7]
		if accepted < 200 || anyway > failed || diverted == 0 || home < diverted || again > doubt {
			t.Errorf("the numbers do not add up:\n%s", said)
		}
		for _, want := range []string{"orders go to backlog queues, in the east", "went to no queue", "the west works again"} {
			if !strings.Contains(said, want) {
				t.Errorf("it does not say %q:\n%s", want, said)
			}
		}
	})
}

func TestThePlayCanBeStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := run(ctx, nil, newOutput()); err == nil {
			t.Error("got no error")
		}
	})
}

// The programs of the terminals, with an outage of the west between them.
func TestOrdersComeHomeBetweenPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for whole seconds")
	}
	serve := func() (*emulator.Server, string) {
		server := must(emulator.New(nil, nil))
		endpoint, err := server.Start("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = endpoint.Close() })
		return server, endpoint.ConnectionString()
	}
	west, westAt := serve()
	_, eastAt := serve()
	fail := func(rules ...emulator.Fault) {
		if err := west.SetFaults(&emulator.Faults{Rules: rules}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	programs := make(chan error, 2)
	producer, worker := newOutput(), newOutput()
	go func() { programs <- run(ctx, []string{"producer", "-west", westAt, "-east", eastAt}, producer) }()
	go func() { programs <- run(ctx, []string{"worker", "-west", westAt, "-east", eastAt}, worker) }()
	producer.waitFor(t, "orders go to the primary queue", 1)
	worker.waitFor(t, "orders handled", 1)
	fail(emulator.Fault{Kind: emulator.FaultReset, Rate: 1}) // for its clients this is a kill
	producer.waitFor(t, "orders go to backlog queues", 1)
	fail()
	producer.waitFor(t, "orders go to the primary queue", 2)
	worker.waitFor(t, "came home from backlog queues", 1)
	stop()
	for range 2 {
		if err := <-programs; err != nil {
			t.Error(err)
		}
	}
}

func TestUnknownProgramsAreRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"clerk", "-west", "nowhere"}, "usage"},
		{[]string{"worker", "producer"}, "producer"},
		{[]string{"worker", "-wset", "nowhere"}, "-wset"},
		{[]string{"worker", "-west", "nowhere"}, "location"},
		{[]string{"producer", "-east", "nowhere"}, "location"},
	} {
		if err := run(t.Context(), c.args, newOutput()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want an error about %s", c.args, err, c.want)
		}
	}
}

func TestTheFlagsAreShown(t *testing.T) {
	out := newOutput()
	if err := run(t.Context(), []string{"worker", "-h"}, out); err != nil {
		t.Fatal(err)
	}
	if said, _ := out.state(); !strings.Contains(said, "-east location") {
		t.Errorf("got %q, want the flags", said)
	}
}

// The second Ctrl-C ends a send that has no response.
func TestTheProducerCanBeHalted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		west := &link{server: must(emulator.New(nil, nil))}
		east := &link{server: must(emulator.New(nil, nil))}
		q, err := open(west.server.ConnectionString(), east.server.ConnectionString(), west, east, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer q.Close()
		s := newShop(q, newLedger(newOutput()), time.Second)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(10 * time.Second)
		if err := west.faults("*:delay=1h"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		stop()
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("it ended before its send did")
		default:
		}
		begun := time.Now()
		s.Halt()
		if err := <-ended; err != nil || time.Since(begun) > time.Second {
			t.Errorf("got %v after %v, want that it ends at once", err, time.Since(begun))
		}
	})
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

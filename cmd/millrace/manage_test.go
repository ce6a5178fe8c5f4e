package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
)

func TestQueueIsCreatedAndDropped(t *testing.T) {
	t.Parallel()
	accounts(t, func(t *testing.T, v invocation) {
		name := newQueueName(t, v)
		q := v.open(t, name)
		exists := "Queue " + q.Name().String() + " already exists.\n"
		for _, want := range []string{"Created queue " + q.Name().String() + ".\n", exists} {
			if got := v.ok(t, "create", name); got != want {
				t.Errorf("create: got %q, want %q", got, want)
			}
		}
		if err := q.SetMetadata(t.Context(), map[string]string{"a": "1"}); err != nil {
			t.Fatal(err)
		}
		if got := v.ok(t, "create", name); got != exists { // with other metadata
			t.Errorf("create: got %q, want %q", got, exists)
		}
		if p, err := q.Properties(t.Context()); err != nil || p.Metadata["a"] != "1" {
			t.Errorf("properties: got %+v, %v; want the metadata kept", p, err)
		}
		if got, want := v.ok(t, "drop", "-yes", name), "Queue "+q.Name().String()+" is deleted.\n"; got != want {
			t.Errorf("drop: got %q, want %q", got, want)
		}
		v.fails(t, exitFailure, []string{"queue " + q.Name().String() + " does not exist\n"}, "drop", name, "-yes")
	})
}

func TestClearDeletesAllMessages(t *testing.T) {
	t.Parallel()
	accounts(t, func(t *testing.T, v invocation) {
		name := createQueue(t, v)
		v.ok(t, "put", name, "1", "2")
		v.ok(t, "put", name, "3", "-delay", "1h")
		if got := v.ok(t, "clear", name, "-yes"); !strings.Contains(got, "has no messages") {
			t.Errorf("clear: got %q, want has no messages", got)
		}
		if p, err := v.open(t, name).Properties(t.Context()); err != nil || p.Depth != 0 {
			t.Errorf("properties after clear: got %+v, %v; want depth 0", p, err)
		}
		v.fails(t, exitFailure, []string{"does not exist", "millrace create " + name + "x"}, "clear", name+"x", "-yes")
	})
}

// TestDropAndClearNeedConfirmation: without -yes and without the queue's name typed, nothing is
// deleted.
func TestDropAndClearNeedConfirmation(t *testing.T) {
	t.Parallel()
	v := on(startServer(t))
	for _, op := range []string{"drop", "clear"} {
		name := createQueue(t, v)
		v.ok(t, "put", name, "1", "2", "3")
		q := v.open(t, name)
		v.fails(t, exitUsage, []string{"not a terminal", "-yes", q.Name().String()}, op, name)

		terminal := v
		terminal.interactive = true
		for typed, want := range map[string]string{"": "no name was typed", "\n": "that is not " + name, "yes\n": "that is not", name + "x\n": "that is not"} {
			r := terminal.withInput(typed).call(t, op, name)
			if r.status != exitFailure || r.out != "" || !strings.Contains(r.errs, want) || !strings.Contains(r.errs, "nothing was deleted") {
				t.Errorf("%s with %q typed: got %+v, want a failure with %q", op, typed, r, want)
			}
			if !strings.Contains(r.errs, "about 3") || !strings.Contains(r.errs, "Type "+name+" to continue: ") {
				t.Errorf("prompt of %s: got %q, want the depth and the name", op, r.errs)
			}
		}
		if p, err := q.Properties(t.Context()); err != nil || p.Depth != 3 {
			t.Errorf("properties after refusals: got %+v, %v; want depth 3", p, err)
		}
		terminal.withInput(name+"\r\n").ok(t, op, name)
		if p, err := q.Properties(t.Context()); p.Depth != 0 || op == "drop" && !errors.Is(err, queue.ErrQueueMissing) {
			t.Errorf("properties after %s: got %+v, %v; want no messages", op, p, err)
		}
		if r := terminal.call(t, op, name+"-none"); r.status != exitFailure || strings.Contains(r.errs, "Type") || !strings.Contains(r.errs, "does not exist") {
			t.Errorf("%s of a missing queue: got %+v, want an error without a prompt", op, r)
		}
	}
}

func TestInvalidQueueNamesAreExplained(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"create", "drop", "clear", "put", "peek", "stat", "pause", "resume"} {
		args := []string{op}
		if op == "put" {
			args = []string{"put", "-plain", "--"}
		}
		for name, rule := range map[string]string{
			"Orders":                 "only lower-case letters, digits and single hyphens",
			"ab":                     "needs 3 to 63",
			strings.Repeat("x", 64):  "needs 3 to 63",
			"or--ders":               "a hyphen must stand between",
			"orders/messages":        "only lower-case letters",
			"https://a/?sig=S3cret":  "give it with -account",
			"AccountKey=S3cret;Acc":  "give it with -account",
			"UseDevelopmentStorage=": "give it with -account",
		} {
			all := append(append([]string{}, args...), name)
			if op == "put" {
				all = append(all, "x")
			}
			invocation{}.fails(t, exitUsage, []string{rule}, all...)
			if r := (invocation{}).call(t, all...); strings.Contains(r.errs, "S3cret") {
				t.Errorf("%q: the error contains a secret: %s", all, r.errs)
			}
		}
		if op != "stat" { // which then shows all
			invocation{}.fails(t, exitUsage, []string{"missing argument", "millrace " + op + " QUEUE"}, op)
		}
	}
}

// B-02: a clear that the service could not finish in time, or whose answer was lost, is repeated
// until it succeeds.
func TestAClearThatTimesOutIsRepeated(t *testing.T) {
	t.Parallel()
	e, err := must(emulator.New(nil, &emulator.Options{Faults: &emulator.Faults{Rules: []emulator.Fault{
		{Operation: emulator.ClearMessages, Kind: emulator.FaultTimeout, At: []int64{1, 2, 4, 5, 7}},
		{Operation: emulator.ClearMessages, Kind: emulator.FaultReset, At: []int64{3, 6, 8}},
	}}})).Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	v := on(e.ConnectionString())
	name := createQueue(t, v)
	v.ok(t, "put", name, "1", "2")
	v.ok(t, "clear", name, "-yes")
	if p, err := v.open(t, name).Properties(t.Context()); err != nil || p.Depth != 0 {
		t.Errorf("depth %d, %v; want 0", p.Depth, err)
	}
}

// A clear that is never answered ends after three tries.
func TestAClearWithoutAnswersEnds(t *testing.T) {
	t.Parallel()
	e, err := must(emulator.New(nil, &emulator.Options{Faults: &emulator.Faults{Rules: []emulator.Fault{
		{Operation: emulator.ClearMessages, Kind: emulator.FaultReset, At: []int64{1, 2, 3}},
	}}})).Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	v := on(e.ConnectionString())
	name := createQueue(t, v)
	v.ok(t, "put", name, "1")
	v.fails(t, exitFailure, []string{"outcome unknown"}, "clear", name, "-yes")
	if p, err := v.open(t, name).Properties(t.Context()); err != nil || p.Depth != 1 {
		t.Errorf("depth %d, %v; want 1: the fourth clear would have worked", p.Depth, err)
	}
	v.ok(t, "clear", name, "-yes")
}

package queue_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/millrace/millrace/queue"
)

// C-01: every cause has a name of its own, which JSON keeps.
func TestCausesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for i, c := range queue.Causes() {
		if int(c) != i {
			t.Errorf("cause %d is at index %d", c, i)
		}
		if c.String() == "" || seen[c.String()] {
			t.Errorf("cause %d: got the name %q, want one of its own", i, c)
		}
		seen[c.String()] = true
		text, err := json.Marshal(c)
		var back queue.Cause
		if err != nil || json.Unmarshal(text, &back) != nil || back != c {
			t.Errorf("%v: got %s, %v, and back %v", c, text, err, back)
		}
	}
	none := queue.Cause(len(queue.Causes()))
	if want := fmt.Sprintf("Cause(%d)", len(queue.Causes())); none.String() != want {
		t.Errorf("a cause that does not exist: got %v, want %s", none, want)
	}
	if _, err := none.MarshalText(); err == nil {
		t.Errorf("%v: got no error", none)
	}
	if none.UnmarshalText([]byte("nothing")) == nil {
		t.Error("a name that does not exist: got no error")
	}
}

// C-01: cause and repeats are independent of each other, and unknown and 0 where nobody said.
func TestAContextTellsCauseAndRepeats(t *testing.T) {
	check := func(ctx context.Context, cause queue.Cause, repeats int) {
		t.Helper()
		if queue.CauseOf(ctx) != cause || queue.Repeats(ctx) != repeats {
			t.Errorf("got %v, repeated %d times, want %v, %d", queue.CauseOf(ctx), queue.Repeats(ctx), cause, repeats)
		}
	}
	ctx := t.Context()
	check(ctx, queue.CauseUnknown, 0)
	renewal := queue.WithCause(ctx, queue.CauseRenew)
	check(renewal, queue.CauseRenew, 0)
	again := queue.WithRepeats(renewal, 2)
	check(again, queue.CauseRenew, 2)
	check(queue.WithCause(again, queue.CauseSave), queue.CauseSave, 2)
	check(queue.WithRepeats(again, 0), queue.CauseRenew, 0)
	check(queue.WithRepeats(ctx, -1), queue.CauseUnknown, 0)
	if queue.WithRepeats(renewal, 0) != renewal {
		t.Error("a first try: got another context, want the same one, which costs nothing")
	}
	type other struct{}
	within, cancel := context.WithCancel(queue.WithCause(context.WithValue(again, other{}, 7), queue.CauseDelete))
	check(within, queue.CauseDelete, 2)
	if within.Value(other{}) != 7 {
		t.Error("another value of the context is lost")
	}
	later := queue.WithRepeats(within, 3)
	check(later, queue.CauseDelete, 3)
	if cancel(); later.Err() == nil {
		t.Error("a context with repeats does not end with its parent")
	}
	if n := testing.AllocsPerRun(100, func() { check(again, queue.CauseRenew, 2) }); n > 0 {
		t.Errorf("reading cause and repeats: got %v allocations, want none", n)
	}
}

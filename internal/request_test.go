package internal_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/millrace/millrace/internal/request"
)

// C-01: every cause has a name of its own, which JSON keeps.
func TestCausesHaveNames(t *testing.T) {
	seen := map[string]bool{}
	for i, c := range request.Causes() {
		if int(c) != i {
			t.Errorf("cause %d is at index %d", c, i)
		}
		if c.String() == "" || seen[c.String()] {
			t.Errorf("cause %d: got the name %q, want one of its own", i, c)
		}
		seen[c.String()] = true
		text, err := json.Marshal(c)
		var back request.Cause
		if err != nil || json.Unmarshal(text, &back) != nil || back != c {
			t.Errorf("%v: got %s, %v, and back %v", c, text, err, back)
		}
	}
	none := request.Cause(len(request.Causes()))
	if want := fmt.Sprintf("Cause(%d)", len(request.Causes())); none.String() != want {
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
	check := func(ctx context.Context, cause request.Cause, repeats int) {
		t.Helper()
		if request.CauseOf(ctx) != cause || request.Repeats(ctx) != repeats {
			t.Errorf("got %v, repeated %d times, want %v, %d", request.CauseOf(ctx), request.Repeats(ctx), cause, repeats)
		}
	}
	ctx := t.Context()
	check(ctx, request.CauseUnknown, 0)
	renewal := request.WithCause(ctx, request.CauseRenew)
	check(renewal, request.CauseRenew, 0)
	again := request.WithRepeats(renewal, 2)
	check(again, request.CauseRenew, 2)
	check(request.WithCause(again, request.CauseSave), request.CauseSave, 2)
	check(request.WithRepeats(again, 0), request.CauseRenew, 0)
	check(request.WithRepeats(ctx, -1), request.CauseUnknown, 0)
	if request.WithRepeats(renewal, 0) != renewal {
		t.Error("a first try: got another context, want the same one, which costs nothing")
	}
	type other struct{}
	within, cancel := context.WithCancel(request.WithCause(context.WithValue(again, other{}, 7), request.CauseDelete))
	check(within, request.CauseDelete, 2)
	if within.Value(other{}) != 7 {
		t.Error("another value of the context is lost")
	}
	later := request.WithRepeats(within, 3)
	check(later, request.CauseDelete, 3)
	if cancel(); later.Err() == nil {
		t.Error("a context with repeats does not end with its parent")
	}
	if n := testing.AllocsPerRun(100, func() { check(again, request.CauseRenew, 2) }); n > 0 {
		t.Errorf("reading cause and repeats: got %v allocations, want none", n)
	}
}

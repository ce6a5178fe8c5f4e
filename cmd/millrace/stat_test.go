package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

func TestStatTellsWhatIsKnown(t *testing.T) {
	t.Parallel()
	accounts(t, func(t *testing.T, v invocation) {
		name := made(t, v)
		v.ok(t, "put", name, "1", "2")
		v.ok(t, "put", name, "3", "-delay", "1h")
		v.ok(t, "create", name+"-poison")
		v.ok(t, "put", name+"-poison", "4")
		q := v.open(t, name)
		if err := q.SetMetadata(t.Context(), map[string]string{"b": "2", "a": "1"}); err != nil {
			t.Fatal(err)
		}
		got := v.ok(t, "stat", name)
		for _, want := range []string{
			"queue           " + q.Name().String() + "\n", "messages        3, hidden ones included\n", "visible now     2\n",
			"oldest of them  put ", "s ago\n", "poison          1 in " + name + "-poison\n", "metadata        a=1\n                b=2\n",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("it does not say %q:\n%s", want, got)
			}
		}
		if got := v.ok(t, "stat", name+"-poison"); strings.Contains(got, "poison   ") || !strings.Contains(got, "visible now     1\n") {
			t.Errorf("of the poison queue:\n%s", got)
		}
		var s stat
		if err := json.Unmarshal([]byte(v.ok(t, "stat", "-json", name)), &s); err != nil {
			t.Fatal(err)
		}
		if s.Queue != name || s.Account != q.Name().Account || s.Depth != 3 || s.Visible != 2 || s.VisibleMore || s.OldestInserted == nil ||
			s.PoisonDepth == nil || *s.PoisonDepth != 1 || len(s.Metadata) != 2 {
			t.Errorf("in JSON: %+v", s)
		}
		empty := made(t, v)
		if got, want := v.ok(t, "stat", empty), "queue        "+v.open(t, empty).Name().String()+"\nmessages     0, hidden ones included\nvisible now  0\n"; got != want {
			t.Errorf("of an empty queue %q, want %q", got, want)
		}
		v.fails(t, exitFailure, []string{"queue " + v.open(t, name+"x").Name().String() + " does not exist; make it with millrace create " + name + "x, or see with millrace queues which there are\n"}, "stat", name+"x")
	})
}

// TestStatIsSureOfWhatItSees: a peek sees 32 messages, and there may be more; the oldest
// need not come first.
func TestStatIsSureOfWhatItSees(t *testing.T) {
	t.Parallel()
	v := on(local(t))
	name := made(t, v)
	v.reads(strings.Repeat("1\n", 31)).ok(t, "put", name)
	if got := v.ok(t, "stat", name); !strings.Contains(got, "visible now     31\n") {
		t.Error(got)
	}
	v.reads(strings.Repeat("1\n", 2)).ok(t, "put", name)
	if got := v.ok(t, "stat", name); !strings.Contains(got, "visible now     32 or more\n") || !strings.Contains(got, "messages        33,") {
		t.Error(got)
	}
	at := time.Now()
	first := queue.Message{Inserted: at}
	found, err := readStat(t.Context(), unordered{v.open(t, name), []queue.Message{{Inserted: at.Add(time.Minute)}, first, {Inserted: at.Add(time.Hour)}}})
	if err != nil || found.OldestInserted == nil || !found.OldestInserted.Equal(at) {
		t.Errorf("the oldest of three: %+v, %v", found, err)
	}
	var out strings.Builder
	s := &stat{Account: "a", Queue: "b", OldestInserted: &at, Metadata: map[string]string{"x": "\x1b[1m"}}
	if err := s.print(&out, at.Add(90*time.Second)); err != nil || !strings.Contains(out.String(), "put 1m30s ago") || strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q, %v", &out, err)
	}
}

// TestStatNeedsNoPoisonQueue: not one that cannot be there, nor one that we may not see.
func TestStatNeedsNoPoisonQueue(t *testing.T) {
	t.Parallel()
	v := on(local(t))
	name := fresh(t, v)
	name += strings.Repeat("x", 60-len(name)) // with -poison it is too long
	v.ok(t, "create", name)
	if got := v.ok(t, "stat", name); strings.Contains(got, "poison") {
		t.Error(got)
	}
}

// unordered is a queue whose messages come in another order than they were put in, as the
// service's may.
type unordered struct {
	queue.Queue
	messages []queue.Message
}

func (q unordered) Peek(context.Context, int) ([]queue.Message, error) { return q.messages, nil }

package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

func TestStatShowsAQueue(t *testing.T) {
	t.Parallel()
	accounts(t, func(t *testing.T, v invocation) {
		name := createQueue(t, v)
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
			"queue           " + q.Name().String() + "\n", "messages        3, including hidden ones\n", "visible now     2\n",
			"oldest of them  put ", "s ago\n", "poison          1 in " + name + "-poison\n", "metadata        a=1\n                b=2\n",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("stat: got\n%s\nwant %q in it", got, want)
			}
		}
		if got := v.ok(t, "stat", name+"-poison"); strings.Contains(got, "poison   ") || !strings.Contains(got, "visible now     1\n") {
			t.Errorf("stat of the poison queue: got\n%s\nwant 1 visible and no poison line", got)
		}
		var s stat
		if err := json.Unmarshal([]byte(v.ok(t, "stat", "-json", name)), &s); err != nil {
			t.Fatal(err)
		}
		if s.Queue != name || s.Account != q.Name().Account || s.Depth != 3 || s.Visible != 2 || s.VisibleMore || s.OldestInserted == nil ||
			s.PoisonDepth == nil || *s.PoisonDepth != 1 || len(s.Metadata) != 2 {
			t.Errorf("stat -json: got %+v, want depth 3, 2 visible, 1 poison and 2 metadata", s)
		}
		empty := createQueue(t, v)
		if got, want := v.ok(t, "stat", empty), "queue        "+v.open(t, empty).Name().String()+"\nmessages     0, including hidden ones\nvisible now  0\n"; got != want {
			t.Errorf("stat of an empty queue: got %q, want %q", got, want)
		}
		v.fails(t, exitFailure, []string{"queue " + v.open(t, name+"x").Name().String() + " does not exist; create it with millrace create " + name + "x, or list the queues with millrace queues\n"}, "stat", name+"x")
	})
}

// TestStatCountsVisibleMessages: a peek shows at most 32 messages, so there may be more, and the
// oldest need not come first.
func TestStatCountsVisibleMessages(t *testing.T) {
	t.Parallel()
	v := on(startServer(t))
	name := createQueue(t, v)
	v.withInput(strings.Repeat("1\n", 31)).ok(t, "put", name)
	if got := v.ok(t, "stat", name); !strings.Contains(got, "visible now     31\n") {
		t.Errorf("stat: got %s, want 31 visible", got)
	}
	v.withInput(strings.Repeat("1\n", 2)).ok(t, "put", name)
	if got := v.ok(t, "stat", name); !strings.Contains(got, "visible now     32 or more\n") || !strings.Contains(got, "messages        33,") {
		t.Errorf("stat: got %s, want 32 or more visible of 33", got)
	}
	at := time.Now()
	first := queue.Message{Inserted: at}
	found, err := readStat(t.Context(), unordered{v.open(t, name), []queue.Message{{Inserted: at.Add(time.Minute)}, first, {Inserted: at.Add(time.Hour)}}})
	if err != nil || found.OldestInserted == nil || !found.OldestInserted.Equal(at) {
		t.Errorf("oldest of three: got %+v, %v; want %v", found, err, at)
	}
	var out strings.Builder
	s := &stat{Account: "a", Queue: "b", OldestInserted: &at, Metadata: map[string]string{"x": "\x1b[1m"}}
	if err := s.print(&out, at.Add(90*time.Second)); err != nil || !strings.Contains(out.String(), "put 1m30s ago") || strings.Contains(out.String(), "\x1b") {
		t.Errorf("print: got %q, %v; want the age, and control characters escaped", &out, err)
	}
}

// TestStatWithoutAPoisonQueue: stat works if the name of the poison queue would be too long.
func TestStatWithoutAPoisonQueue(t *testing.T) {
	t.Parallel()
	v := on(startServer(t))
	name := newQueueName(t, v)
	name += strings.Repeat("x", 60-len(name)) // too long with -poison
	v.ok(t, "create", name)
	if got := v.ok(t, "stat", name); strings.Contains(got, "poison") {
		t.Errorf("stat: got %s, want no poison line", got)
	}
}

// unordered is a queue that returns messages in another order than they were put, as the
// service may.
type unordered struct {
	queue.Queue
	messages []queue.Message
}

func (q unordered) Peek(context.Context, int) ([]queue.Message, error) { return q.messages, nil }

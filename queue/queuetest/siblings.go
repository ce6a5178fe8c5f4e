package queuetest

import (
	"errors"
	"strings"

	"github.com/millrace/millrace/queue"
)

var siblingTests = []test{
	{"Name", func(e *env) {
		n := e.q.Name()
		if n.Account == "" || !strings.HasPrefix(n.Queue, "conform-") {
			e.Errorf("name: got %+v, want an account and the queue that was opened", n)
		}
	}},
	{"SiblingIsAQueueOfItsOwn", func(e *env) {
		s := e.q.Sibling("-poison")
		if got, want := s.Name(), (queue.Name{Account: e.q.Name().Account, Queue: e.q.Name().Queue + "-poison"}); got != want {
			e.Fatalf("name of the sibling: got %v, want %v", got, want)
		}
		e.create()
		_, err := s.Enqueue(e.ctx, "x", nil)
		e.is(err, queue.ErrQueueMissing, "enqueue into a sibling that does not exist")
		e.ok(s.Create(e.ctx, map[string]string{"a": "1"}))
		_, err = s.Enqueue(e.ctx, "poison", nil)
		e.ok(err)
		e.none("with a message in the sibling")
		e.enqueue("good", nil)
		batch, err := s.Dequeue(e.ctx, queue.MaxBatch, long)
		e.ok(err)
		if got := texts(batch); len(got) != 1 || got[0] != "poison" {
			e.Fatalf("messages of the sibling: got %q, want only \"poison\"", got)
		}
		// A lease is valid only in its queue.
		e.is(e.q.Delete(e.ctx, batch[0].Lease), queue.ErrLeaseLost, "delete of the sibling's message")
		e.metadata(nil, "with metadata on the sibling")
		m, ok := s.(queue.Manager)
		if !ok {
			e.Fatalf("sibling of a queue.Manager: got %T, want a queue.Manager too", s)
		}
		e.ok(m.Drop(e.ctx))
		if m := e.one(long); m.Text != "good" {
			e.Errorf("message after the sibling was dropped: got %q, want \"good\"", m.Text)
		}
	}},
	{"SiblingOfASibling", func(e *env) {
		s := e.q.Sibling("-a").Sibling("-b")
		if got, want := s.Name().Queue, e.q.Name().Queue+"-a-b"; got != want {
			e.Errorf("name: got %q, want %q", got, want)
		}
		if got := e.q.Sibling("").Name(); got != e.q.Name() {
			e.Errorf("name of the sibling without a suffix: got %v, want %v", got, e.q.Name())
		}
	}},
	{"BadSiblingNameIsRefusedAtTheFirstCall", func(e *env) {
		before := 0
		if e.h.Requests != nil {
			before = e.h.Requests(e.q)
		}
		for _, suffix := range []string{"-" + strings.Repeat("x", 63), "-", "--x", "-Poison", "_x", "/../x", "?x"} {
			s := e.q.Sibling(suffix)
			for op, err := range map[string]error{
				"create":  s.Create(e.ctx, nil),
				"dequeue": errorOf(s.Dequeue(e.ctx, 1, long)),
				"enqueue": errorOf(s.Enqueue(e.ctx, "x", nil)),
			} {
				if !errors.Is(err, queue.ErrInvalid) {
					e.Errorf("%s on the sibling %q: got %v, want %v", op, suffix, err, queue.ErrInvalid)
				}
			}
		}
		if e.h.Requests != nil && e.h.Requests(e.q) != before {
			e.Errorf("requests with bad names: got %d, want 0", e.h.Requests(e.q)-before)
		}
	}},
}

func errorOf[T any](_ T, err error) error { return err }

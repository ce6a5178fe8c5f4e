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
			e.Errorf("name is %+v", n)
		}
	}},
	{"SiblingIsAQueueOfItsOwn", func(e *env) {
		s := e.q.Sibling("-poison")
		if got, want := s.Name(), (queue.Name{Account: e.q.Name().Account, Queue: e.q.Name().Queue + "-poison"}); got != want {
			e.Fatalf("sibling is %v, want %v", got, want)
		}
		e.create()
		_, err := s.Enqueue(e.ctx, "x", nil)
		e.is(err, queue.ErrQueueMissing, "enqueue into a sibling that was not made")
		e.ok(s.Create(e.ctx, map[string]string{"a": "1"}))
		_, err = s.Enqueue(e.ctx, "poison", nil)
		e.ok(err)
		e.none("with a message in the sibling")
		e.enqueue("good", nil)
		batch, err := s.Dequeue(e.ctx, queue.MaxBatch, long)
		e.ok(err)
		if got := texts(batch); len(got) != 1 || got[0] != "poison" {
			e.Fatalf("the sibling holds %q", got)
		}
		// A lease is of its queue.
		e.is(e.q.Delete(e.ctx, batch[0].Lease), queue.ErrLeaseLost, "delete of the sibling's message")
		e.metadata(nil, "with metadata on the sibling")
		m, ok := s.(queue.Manager)
		if !ok {
			e.Fatal("the sibling is no queue.Manager, though its queue is")
		}
		e.ok(m.Drop(e.ctx))
		if m := e.one(long); m.Text != "good" {
			e.Errorf("after the sibling was dropped there is %q", m.Text)
		}
	}},
	{"SiblingOfASibling", func(e *env) {
		s := e.q.Sibling("-a").Sibling("-b")
		if got, want := s.Name().Queue, e.q.Name().Queue+"-a-b"; got != want {
			e.Errorf("name is %q, want %q", got, want)
		}
		if got := e.q.Sibling("").Name(); got != e.q.Name() {
			e.Errorf("sibling without a suffix is %v", got)
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
					e.Errorf("%s on the sibling %q: %v, want %v", op, suffix, err, queue.ErrInvalid)
				}
			}
		}
		if e.h.Requests != nil && e.h.Requests(e.q) != before {
			e.Errorf("bad names spent %d requests", e.h.Requests(e.q)-before)
		}
	}},
}

func errorOf[T any](_ T, err error) error { return err }

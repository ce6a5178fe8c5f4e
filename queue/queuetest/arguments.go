package queuetest

import (
	"math"
	"strings"
	"time"

	"github.com/millrace/millrace/queue"
)

var argumentTests = []test{{"BadArgumentsSpendNoRequest", func(e *env) { // section 15 of the requirements
	e.create()
	m := e.enqueue("x", nil)
	before := 0
	if e.h.Requests != nil {
		before = e.h.Requests(e.q)
	}
	calls := 0
	refused := func(what string, kind, err error) {
		e.Helper()
		calls++
		e.is(err, kind, what)
		if e.h.Requests != nil {
			if now := e.h.Requests(e.q); now != before {
				e.Errorf("%s: requests: got %d, want 0", what, now-before)
				before = now
			}
		}
	}
	enqueue := func(text string, o *queue.EnqueueOptions) error { _, err := e.q.Enqueue(e.ctx, text, o); return err }
	dequeue := func(n int, v time.Duration) error { _, err := e.q.Dequeue(e.ctx, n, v); return err }
	peek := func(n int) error { _, err := e.q.Peek(e.ctx, n); return err }
	update := func(l queue.Lease, text string, v time.Duration) error {
		_, err := e.q.Update(e.ctx, l, text, v)
		return err
	}

	for _, n := range []int{math.MinInt, -1, 0, queue.MaxBatch + 1, math.MaxInt} {
		refused("dequeue of a bad number", queue.ErrInvalid, dequeue(n, time.Second))
		refused("peek of a bad number", queue.ErrInvalid, peek(n))
	}
	for _, v := range []time.Duration{math.MinInt64, -1, 0, queue.MaxVisibility + 1, queue.MaxVisibility + time.Second, math.MaxInt64} {
		refused("dequeue with a visibility of "+v.String(), queue.ErrInvalid, dequeue(1, v))
	}
	for _, v := range []time.Duration{math.MinInt64, -1, queue.MaxVisibility + 1, math.MaxInt64} {
		refused("update with a visibility of "+v.String(), queue.ErrInvalid, update(m.Lease, "x", v))
		refused("enqueue with a delay of "+v.String(), queue.ErrInvalid, enqueue("x", &queue.EnqueueOptions{Delay: v}))
	}
	for _, ttl := range []time.Duration{math.MinInt64, -time.Second, -2, 1, time.Second - 1, math.MaxInt64} {
		refused("enqueue with a TTL of "+ttl.String(), queue.ErrInvalid, enqueue("x", &queue.EnqueueOptions{TTL: ttl}))
	}
	refused("enqueue delayed as long as it lives", queue.ErrInvalid, enqueue("x", &queue.EnqueueOptions{Delay: time.Minute, TTL: time.Minute}))
	refused("enqueue delayed longer than it lives, rounded up", queue.ErrInvalid, enqueue("x", &queue.EnqueueOptions{Delay: 1100 * time.Millisecond, TTL: 1900 * time.Millisecond}))

	for _, l := range []queue.Lease{{}, {ID: m.ID}, {Receipt: m.Receipt}} {
		refused("update without a lease", queue.ErrInvalid, update(l, "x", 0))
		refused("delete without a lease", queue.ErrInvalid, e.q.Delete(e.ctx, l))
	}

	big := strings.Repeat("x", queue.MaxText+1)
	refused("enqueue of 65,537 bytes", queue.ErrTooLarge, enqueue(big, nil))
	refused("update to 65,537 bytes", queue.ErrTooLarge, update(m.Lease, big, 0))
	for _, text := range []string{"\x00", "a\x1fb", "\x7f\x08", "\xff", "a\xc3", "\xed\xa0\x80", "\uFFFE", "\uFFFF"} {
		refused("enqueue of a text that XML cannot carry", queue.ErrInvalid, enqueue(text, nil))
		refused("update to a text that XML cannot carry", queue.ErrInvalid, update(m.Lease, text, 0))
	}

	for _, metadata := range []map[string]string{
		{"": "x"}, {"1a": "x"}, {"a-b": "x"}, {"a b": "x"}, {"ä": "x"}, {"a": " x"}, {"a": "x\n"}, {"a": "ä"},
		{"name": "x", "NAME": "y"}, {"a": strings.Repeat("x", queue.MaxMetadata)},
	} {
		refused("create with bad metadata", queue.ErrInvalid, e.q.Create(e.ctx, metadata))
		refused("set bad metadata", queue.ErrInvalid, e.q.SetMetadata(e.ctx, metadata))
	}
	if calls < 60 {
		e.Errorf("calls with bad arguments: got %d, want at least 60", calls)
	}

	if seen := e.peek(queue.MaxBatch); len(seen) != 1 || seen[0].Text != "x" || seen[0].DequeueCount != 0 {
		e.Errorf("queue after all refusals: got %+v, want its message unchanged", seen)
	}
}}}

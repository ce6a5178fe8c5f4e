package dispatcher_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
)

// backlogTest is a dispatcher whose handlers return one by one.
type backlogTest struct {
	*testing.T
	*dispatcher.Dispatcher
	release chan struct{}
	got     chan int // what calls of Reserve returned
}

func testBacklog(t *testing.T, o dispatcher.Options, f func(*backlogTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := &backlogTest{T: t, release: make(chan struct{}), got: make(chan int, 10)}
		handler := func(context.Context, *dispatcher.Message[[]byte]) error { <-x.release; return nil }
		o.Format = codec.Plain
		d, err := dispatcher.New(instantQueue{}, dispatcher.Jobs[[]byte]{Handler: handler, Codec: codec.Bytes()}, &o)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		x.Dispatcher = d
		f(x)
		close(x.release)
		if err := d.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// fill dispatches as many messages as the capacity has slots, in batches that are full.
func (x *backlogTest) fill(capacity int) {
	for used := 0; used < capacity; {
		n := x.Reserve(x.Context())
		x.answer(n, n)
		used += n
	}
}

// answer dispatches n messages to reserved slots.
func (x *backlogTest) answer(n, reserved int) {
	batch := make([]queue.Message, n)
	for i := range batch {
		batch[i] = queue.Message{Lease: queue.Lease{ID: "id", Receipt: "r"}, Text: "text", DequeueCount: 1}
	}
	x.Dispatch(batch, reserved, time.Now(), time.Minute)
	synctest.Wait()
}

// reserve calls Reserve on a goroutine of its own; got has the result.
func (x *backlogTest) reserve() {
	go func() { x.got <- x.Reserve(x.Context()) }()
	synctest.Wait()
}

// end lets n handlers return.
func (x *backlogTest) end(n int) {
	for range n {
		x.release <- struct{}{}
		synctest.Wait()
	}
}

// want checks what the oldest call of Reserve has returned by now; 0 for nothing yet.
func (x *backlogTest) want(n int) {
	x.Helper()
	got := 0
	select {
	case got = <-x.got:
	default:
	}
	if got != n {
		x.Errorf("slots reserved: got %d, want %d", got, n)
	}
}

// B-16: after a full batch a sixth of the slots must be free, otherwise a tenth as it always was: a
// queue without a backlog is polled no later. What is set applies always.
func TestAFullBatchMakesTheNextDequeueWaitForMoreSlots(t *testing.T) {
	for name, c := range map[string]struct {
		options dispatcher.Options
		full    bool
		want    int
	}{
		"backlog":                   {dispatcher.Options{}, true, 11},
		"no backlog":                {dispatcher.Options{}, false, 6},
		"set, backlog":              {dispatcher.Options{MinFetch: 4}, true, 4},
		"set, no backlog":           {dispatcher.Options{MinFetch: 4}, false, 4},
		"few slots, backlog":        {dispatcher.Options{Concurrency: 8}, true, 1},
		"few slots, no backlog":     {dispatcher.Options{Concurrency: 20}, false, 2},
		"many slots, backlog":       {dispatcher.Options{Concurrency: 256}, true, 28},
		"many slots, no backlog":    {dispatcher.Options{Concurrency: 256}, false, 25},
		"smaller batches, backlog":  {dispatcher.Options{BatchSize: 8}, true, 8},
		"smaller batches, too many": {dispatcher.Options{BatchSize: 4, Concurrency: 256}, false, 4},
	} {
		t.Run(name, func(t *testing.T) {
			testBacklog(t, c.options, func(x *backlogTest) {
				capacity := c.options.Concurrency
				if capacity == 0 {
					capacity = dispatcher.DefaultConcurrency
				}
				x.fill(capacity)
				free := 0
				if !c.full {
					x.end(c.want)
					n := x.Reserve(x.Context()) // what the next dequeue asks for is decided by this one
					x.answer(n-1, n)
					free = 1
				}
				x.reserve()
				x.end(c.want - free - 1)
				x.want(0)
				x.end(1)
				x.want(c.want)
				x.Dispatch(nil, c.want, time.Now(), 0)
			})
		})
	}
}

// B-16: Linger bounds the wait under a backlog too.
func TestLingerBoundsTheWaitForALargerBatch(t *testing.T) {
	testBacklog(t, dispatcher.Options{}, func(x *backlogTest) {
		x.fill(dispatcher.DefaultConcurrency)
		begin := time.Now()
		x.end(1)
		if n := x.Reserve(x.Context()); n != 1 || time.Since(begin) != 100*time.Millisecond {
			t.Errorf("got %d slots after %v, want 1 after 100ms", n, time.Since(begin))
		}
		x.Dispatch(nil, 1, time.Now(), 0)
	})
}

// B-16: a loop that waits for a larger batch stops waiting for it when the dequeue of another loop
// shows that nothing more is there.
func TestALoopNoticesThatTheBacklogHasEnded(t *testing.T) {
	testBacklog(t, dispatcher.Options{}, func(x *backlogTest) {
		x.fill(dispatcher.DefaultConcurrency)
		x.end(11)
		other := x.Reserve(x.Context())
		x.reserve()
		x.end(8)
		x.want(0)
		begin := time.Now()
		x.answer(0, other)
		x.want(8 + other)
		if time.Since(begin) != 0 {
			t.Errorf("got the slots after %v, want at once", time.Since(begin))
		}
		x.Dispatch(nil, 8+other, time.Now(), 0)
	})
	testBacklog(t, dispatcher.Options{}, func(x *backlogTest) {
		x.fill(dispatcher.DefaultConcurrency)
		x.end(11)
		other := x.Reserve(x.Context())
		x.reserve()
		x.end(5)
		x.answer(other-1, other) // the one slot left does not make eleven, but more than a tenth
		x.want(6)
		x.Dispatch(nil, 6, time.Now(), 0)
	})
}

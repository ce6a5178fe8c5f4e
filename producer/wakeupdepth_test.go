package producer_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// deep counts readings of its depth, which is that of the queue and more.
type deep struct {
	queue.Queue
	more     int64
	err      error
	readings atomic.Int64

	meanwhile func() // called once, after the first reading; nil means nothing
}

func (d *deep) Properties(ctx context.Context) (queue.Properties, error) {
	d.readings.Add(1)
	p, err := d.Queue.Properties(ctx)
	p.Depth += d.more
	if f := d.meanwhile; f != nil {
		d.meanwhile = nil
		f()
	}
	return p, errors.Join(err, d.err)
}

func depthOf(n int) func(*producer.Options[order]) {
	return func(o *producer.Options[order]) { o.WakeupDepth = n }
}

// send sends so many orders, one after the other.
func send(t *testing.T, p *producer.Producer[order], n int) {
	t.Helper()
	for range n {
		if _, err := p.Send(t.Context(), order{"7"}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOnlyADepthFromTheLevelOnIsTold(t *testing.T) { // L-37
	q, h := &deep{Queue: setup(t)}, &heard{}
	p := telling(q, h, depthOf(100))
	send(t, p, 99)
	if got := h.take(); len(got) != 0 || q.readings.Load() != 1 {
		t.Errorf("below the level: told of %+v with %d readings, want none and 1", got, q.readings.Load())
	}
	send(t, p, 1)
	if got := h.take(); len(got) != 1 || got[0].Bytes < 100 || q.readings.Load() != 2 {
		t.Errorf("at the level: told of %+v with %d readings, want one event and 2", got, q.readings.Load())
	}
	send(t, p, 1000) // nobody takes them
	got := h.take()
	if len(got) != 10 || q.readings.Load() != 12 {
		t.Fatalf("above it: told of %d with %d readings, want 10 and 12", len(got), q.readings.Load())
	}
	for _, e := range got {
		if want := 100 * h.size(t, q); e.Bytes != want {
			t.Errorf("an event for %d bytes, want the %d of a hundred jobs", e.Bytes, want)
		}
	}
}

// A level that is just missed costs one reading in a tenth of it.
func TestReadingsOfTheDepthAreBounded(t *testing.T) {
	for level, want := range map[int]int64{100: 100, 105: 96} { // once in 10 jobs, and in 11
		taken := &scriptedDepth{depth: int64(level) - 1}
		q, h := &deep{Queue: taken}, &heard{}
		taken.Queue = setup(t)
		send(t, telling(q, h, depthOf(level)), 10*level)
		if n := q.readings.Load(); n != want || len(h.take()) != 0 {
			t.Errorf("level %d: %d readings for %d jobs just below it, want %d", level, n, 10*level, want)
		}
	}
}

// What is sent while the depth is read counts towards the next reading.
func TestJobsThatAreSentDuringAReadingAreNotForgotten(t *testing.T) {
	q, h := &deep{Queue: setup(t)}, &heard{}
	p := telling(q, h, depthOf(100))
	q.meanwhile = func() { send(t, p, 50) }
	send(t, p, 1) // reads a depth of 1
	if got := h.take(); len(got) != 0 || q.readings.Load() != 1 {
		t.Fatalf("told of %+v with %d readings, want none and 1", got, q.readings.Load())
	}
	send(t, p, 49)
	if got := h.take(); len(got) != 1 || q.readings.Load() != 2 {
		t.Errorf("at the level: told of %+v with %d readings, want one event and 2", got, q.readings.Load())
	}
}

// A service that does not respond costs half a second, and then there is an event, in time.
func TestADepthThatIsNotReadInTimeIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, h := &deep{Queue: &hangingDepth{setup(t)}}, &heard{publish: func(ctx context.Context) error { return ctx.Err() }}
		start := time.Now()
		send(t, telling(q, h, depthOf(100)), 1)
		errs := h.takeErrors()
		if took := time.Since(start); took != 500*time.Millisecond || len(h.take()) != 1 || len(errs) != 1 || strings.Contains(errs[0].Error(), "publisher") {
			t.Errorf("reported %v after %v, want one event, and one report of the reading after 500ms", errs, took)
		}
	})
}

// hangingDepth has a depth that nobody can read.
type hangingDepth struct{ queue.Queue }

func (h *hangingDepth) Properties(ctx context.Context) (queue.Properties, error) {
	<-ctx.Done()
	return queue.Properties{}, ctx.Err()
}

// scriptedDepth has a fixed depth: workers take what is sent.
type scriptedDepth struct {
	queue.Queue
	depth int64
}

func (s *scriptedDepth) Properties(context.Context) (queue.Properties, error) {
	return queue.Properties{Depth: s.depth}, nil
}

func TestADelayedJobIsToldWhateverTheDepth(t *testing.T) {
	q, h := &deep{Queue: setup(t)}, &heard{}
	if _, err := telling(q, h, depthOf(100)).Send(t.Context(), order{"7"}, &producer.SendOptions{Delay: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if got := h.take(); len(got) != 1 || got[0].Due.IsZero() || q.readings.Load() != 0 {
		t.Errorf("told of %+v with %d readings", got, q.readings.Load())
	}
}

func TestADepthThatCannotBeReadIsTold(t *testing.T) {
	denied := errors.New("denied")
	q, h := &deep{Queue: setup(t), err: denied}, &heard{}
	send(t, telling(q, h, depthOf(100)), 1)
	if errs := h.takeErrors(); len(h.take()) != 1 || len(errs) != 1 || !errors.Is(errs[0], denied) {
		t.Errorf("reported %v, want one event and one report", errs)
	}
}

func TestSendAllReadsTheDepthOnce(t *testing.T) {
	q, h := &deep{Queue: setup(t)}, &heard{}
	p := telling(q, h, depthOf(100))
	for range 2 {
		if _, err := p.SendAllSeq(t.Context(), orders(99), nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := h.take(); len(got) != 1 || q.readings.Load() != 2 {
		t.Errorf("told of %+v with %d readings, want one event and 2", got, q.readings.Load())
	}
}

func TestANegativeWakeupDepthIsRefused(t *testing.T) {
	p := telling(setup(t), &heard{}, depthOf(-1))
	if _, err := p.Send(t.Context(), order{"7"}, nil); err == nil || !strings.Contains(err.Error(), "WakeupDepth -1") {
		t.Errorf("got %v", err)
	}
}

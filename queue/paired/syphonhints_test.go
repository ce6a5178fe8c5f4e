package paired

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
)

// region is a paired queue whose primary a test can fail, with a syphon that runs.
type region struct {
	*regions
	*Queue
	down   outage
	syphon *Syphon
}

func newRegion(t *testing.T, o *Options, so *SyphonOptions) *region {
	t.Helper()
	west := open(t, "west", "orders")
	r := &region{regions: &regions{home: west}}
	home := &scripted{Queue: west,
		onEnqueue: func(context.Context, string) error { return r.down.answer() },
		onDequeue: func(int) error { return r.down.answer() },
	}
	r.Queue = must(New(home, open(t, "east", "orders"), o))
	t.Cleanup(func() { _ = r.Close() })
	if err := r.Pair(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, b := range r.rotation.all {
		r.backlogs = append(r.backlogs, b.queue)
	}
	if so == nil {
		so = &SyphonOptions{}
	}
	if so.Seed == 0 {
		so.Seed = 1
	}
	r.syphon = must(NewSyphon([]*Queue{r.Queue}, so))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.syphon.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return r
}

func (r *region) polls() int64 { return r.syphon.State().Requests.Polls }

func TestWhatThisProcessDivertedIsPolledForSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegion(t, &Options{FailoverInterval: -1}, nil)
		time.Sleep(6 * time.Hour)
		r.down.begin(fault(queue.ErrUnavailable, 500))
		if sent, err := r.Enqueue(t.Context(), "job-0", nil); err != nil || sent.Queue.Account != "east" {
			t.Fatalf("got %v, %v; want it diverted", sent.Queue, err)
		}
		r.down.end()
		before := r.polls()
		time.Sleep(1100 * time.Millisecond)
		sameTexts(t, texts(t, r.regions.home), jobs(1))
		if n := r.polls() - before; n > 22 {
			t.Errorf("got %d polls, want at most 22", n)
		}
		if s := r.State(); s.Status != Healthy {
			t.Errorf("got %v, want that sends return when a message has come home", s.Status)
		}
		// However many are diverted, a queue is polled once in MinPoll.
		before = r.polls()
		for range 100 {
			r.syphons.diverted(r.backlogs[3].Name())
			time.Sleep(100 * time.Millisecond)
		}
		if n := r.polls() - before; n < 9 || n > 11+60 {
			t.Errorf("got %d polls in 10 s, want one a second, and those of the other queues", n)
		}
	})
}

// A receiver that was cut off itself knows that others may have diverted.
func TestTheReturnOfThePrimaryIsReasonToPoll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegion(t, nil, nil)
		time.Sleep(6 * time.Hour)
		receive := func() { _, _ = r.Dequeue(t.Context(), 1, time.Second) }
		before := r.polls()
		receive()
		r.down.begin(fault(queue.ErrUnavailable, 500)) // a short one, which fails nothing over
		receive()
		time.Sleep(time.Second)
		receive()
		r.down.end()
		receive()
		time.Sleep(5 * time.Second)
		if n := r.polls() - before; n > 2 {
			t.Errorf("got %d polls, want no reason for any", n)
		}
		// Nor do receives that their callers gave up say anything.
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		r.down.begin(fault(queue.ErrOutcomeUnknown, 0))
		for range 3 {
			_, _ = r.Dequeue(gone, 1, time.Second)
			time.Sleep(10 * time.Second)
		}
		r.down.end()
		before = r.polls()
		receive()
		time.Sleep(5 * time.Second)
		if n := r.polls() - before; n > 2 {
			t.Errorf("got %d polls, want no reason for any", n)
		}
		r.divert(t, 100) // by another process
		r.down.begin(fault(queue.ErrOutcomeUnknown, 0))
		receive()
		time.Sleep(20 * time.Second)
		receive()
		r.down.end()
		receive()
		time.Sleep(2 * time.Second)
		sameTexts(t, texts(t, r.regions.home), jobs(100))
	})
}

// A queue knows the syphons that run, and no others: programs that run one again and again keep none.
func TestASyphonThatEndedGetsNoHints(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegion(t, nil, nil)
		other := must(NewSyphon([]*Queue{r.Queue}, &SyphonOptions{Seed: 2}))
		for range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := other.Run(ctx); err != nil {
				t.Error(err)
			}
			cancel()
		}
		r.syphons.mu.Lock()
		defer r.syphons.mu.Unlock()
		if got := r.syphons.syphons; len(got) != 1 || got[0] != r.syphon {
			t.Errorf("got %d syphons, want the one that runs", len(got))
		}
	})
}

// A hook that panics hurts nothing.
func TestAPanicOfOnErrorIsContained(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegion(t, nil, &SyphonOptions{OnError: func(error) { panic("bug") }})
		if _, err := r.backlogs[0].Enqueue(t.Context(), "strange", nil); err != nil {
			t.Fatal(err)
		}
		r.divert(t, 50)
		time.Sleep(2 * time.Hour)
		sameTexts(t, texts(t, r.regions.home), jobs(50))
		if got := r.syphon.State(); got.Unreadable != 1 || got.LastError == nil {
			t.Errorf("got %+v, want one that is left", got)
		}
	})
}

package paired_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/limits"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/paired"
)

// ledger counts the jobs by what became of them.
type ledger struct {
	mu      sync.Mutex
	sent    map[string]producer.Sent     // by body; guarded by mu
	unknown map[string]bool              // sends that failed with an unknown outcome; guarded by mu
	failed  map[string]error             // the others that failed; guarded by mu
	handled map[string]map[queue.ID]bool // messages by body; guarded by mu
}

func newLedger() *ledger {
	return &ledger{sent: map[string]producer.Sent{}, unknown: map[string]bool{}, failed: map[string]error{}, handled: map[string]map[queue.ID]bool{}}
}

// send sends one job.
func (l *ledger) send(ctx context.Context, jobs *producer.Producer[string], body string) {
	sent, err := jobs.Send(ctx, body, nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.sent[body] = sent
	case errors.Is(err, queue.ErrOutcomeUnknown):
		l.unknown[body] = true
	default:
		l.failed[body] = err
	}
}

func (l *ledger) handle(_ context.Context, m *listener.Message[string]) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.handled[m.Body] == nil {
		l.handled[m.Body] = map[queue.ID]bool{}
	}
	l.handled[m.Body][m.ID] = true // a lost delete brings a message again, and that is no second message
	return nil
}

// check compares what became of the jobs with how often each was found in the end.
func (l *ledger) check(t *testing.T, found map[string]int, s paired.State) {
	t.Helper()
	twice, more := 0, 0
	for _, n := range found {
		more += n - 1
	}
	if int64(more) > s.Unanswered {
		t.Errorf("got %d duplicates, want no more than the %d sends without a response", more, s.Unanswered)
	}
	for body, sent := range l.sent {
		switch n := found[body]; {
		case n == 0:
			t.Errorf("%s was accepted by %v and is nowhere", body, sent.Queue)
		case n > 1 && !sent.MaybeTwice:
			t.Errorf("%s was found %d times, want once: %+v", body, n, sent)
		case n > 1:
			twice++
		}
	}
	for body, err := range l.failed {
		if found[body] > 0 {
			t.Errorf("%s failed with %v and was found", body, err)
		}
	}
	for body := range found {
		if _, ok := l.sent[body]; !ok && !l.unknown[body] {
			t.Errorf("%s was found and neither accepted nor of unknown outcome", body)
		}
	}
	t.Logf("%d accepted, %d of them found more than once (%d without a response), %d of unknown outcome, %d failed", len(l.sent), twice, s.Unanswered, len(l.unknown), len(l.failed))
}

// body returns the body of a job in a text, in a backlog queue or at home.
func body(t *testing.T, text string) string {
	t.Helper()
	if strings.HasPrefix(text, "backlog/2 ") {
		_, text, _ = strings.Cut(text, "\n")
	}
	_, sealed, _, err := envelope.Open(text, codec.Auto)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Trim(string(sealed), `"`)
}

// take counts the jobs in a queue by body.
func take(t *testing.T, q queue.Queue, found map[string]int) {
	t.Helper()
	for {
		batch, err := q.Dequeue(context.Background(), queue.MaxBatch, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			return
		}
		for _, m := range batch {
			found[body(t, m.Text)]++
		}
	}
}

// With the default options no send of a producer fails when the primary queue stops answering.
func TestNoSendFailsWhenThePrimaryHangs(t *testing.T) {
	for name, f := range map[string]fault{
		"no answer":                  {hangs: true, all: true},
		"unavailable":                {err: unavailable, all: true},
		"answers too late, and acts": {hangs: true, all: true, acts: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := setup(t, paired.Options{})
				jobs, all := producer.New[string](b.queue, nil), newLedger()
				b.west.fault("orders", f)
				var sends sync.WaitGroup
				for i := range 300 {
					sends.Go(func() { all.send(b.ctx, jobs, fmt.Sprint("job-", i)) })
					time.Sleep(300 * time.Millisecond)
				}
				sends.Wait()
				if len(all.sent) != 300 {
					t.Errorf("got %d accepted, %d of unknown outcome and %v failed; want all accepted", len(all.sent), len(all.unknown), all.failed)
				}
				found := map[string]int{}
				for _, r := range []*region{b.west, b.east} {
					for _, name := range r.names() {
						take(t, r.open(name), found)
					}
				}
				all.check(t, found, b.queue.State())
			})
		})
	}
}

// A job in a backlog queue can be cancelled, until it is taken from there.
func TestADivertedJobCanBeCancelled(t *testing.T) {
	limit, err := limits.NewProcess(&limits.ProcessOptions{Messages: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for name, wrap := range map[string]func(queue.Queue) queue.Queue{"alone": func(q queue.Queue) queue.Queue { return q }, "limited": limit.Wrap} {
		t.Run(name, func(t *testing.T) { cancelDiverted(t, wrap) })
	}
}

func cancelDiverted(t *testing.T, wrap func(queue.Queue) queue.Queue) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1})
		b.west.fault("", fault{err: unavailable, all: true})
		jobs := producer.New[string](wrap(b.queue), nil)
		sent, err := jobs.Send(b.ctx, "job", &producer.SendOptions{Delay: time.Hour})
		b.ok(err)
		if sent.Queue.Account != "east" || sent.MaybeTwice {
			t.Errorf("got %+v, want it in the backlog once", sent)
		}
		b.ok(jobs.Cancel(b.ctx, sent))
		if got := b.texts(b.east); len(got) != 0 {
			t.Errorf("got %q, want no job", got)
		}
		if sent, err = jobs.Send(b.ctx, "job", nil); err != nil {
			t.Fatal(err)
		}
		take(t, b.east.open(sent.Queue.Queue), map[string]int{})
		if err = jobs.Cancel(b.ctx, sent); !errors.Is(err, queue.ErrLeaseLost) {
			t.Errorf("got %v, want %v", err, queue.ErrLeaseLost)
		}
	})
}

// Whatever answers are lost, late or doubled on both sides: what was accepted is there, and what is there more than once
// says that it may be.
func TestLostAnswersLoseNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	for seed := range uint64(20) {
		bubble(t, func(t *testing.T) {
			engine := must(localqueue.New(nil))
			account := func(name string, seed uint64, rates, outage faultqueue.Rates) *faultqueue.Queue {
				return must(faultqueue.New(engine.Queue(queue.Name{Account: name, Queue: "orders"}), &faultqueue.Options{
					Seed: seed, Every: rates,
					Phases: []faultqueue.Phase{{From: time.Minute, For: 5 * time.Minute, Faults: map[faultqueue.Op]faultqueue.Rates{faultqueue.Enqueue: outage}}},
				}))
			}
			some := faultqueue.Rates{Throttled: .02, Unavailable: .05, LostRequest: .05, LostResponse: .05, Late: .05}
			west := account("west", seed, some, faultqueue.Rates{Unavailable: .4, LostRequest: .2, LostResponse: .2, Late: .2})
			east := account("east", seed+1000, some, some)
			retried(t, func() error { return west.Create(t.Context(), nil) })
			q := must(paired.New(west, east, &paired.Options{Backlogs: 3, Logger: slog.New(slog.DiscardHandler)}))
			defer q.Close()
			retried(t, func() error { return q.Pair(t.Context()) })
			jobs, all := producer.New[string](q, nil), newLedger()
			var sends sync.WaitGroup
			for i := range 500 {
				sends.Go(func() { all.send(t.Context(), jobs, fmt.Sprint("job-", i)) })
				time.Sleep(time.Second)
			}
			sends.Wait()
			west.Wait()
			east.Wait()
			found := map[string]int{}
			take(t, engine.Queue(west.Name()), found)
			for i := range 3 {
				take(t, engine.Queue(east.Sibling(fmt.Sprintf("-backlog-%02d", i)).Name()), found)
			}
			s := q.State()
			all.check(t, found, s)
			if s.Failovers == 0 || s.Diverted < 200 || len(all.sent) < 490 {
				t.Errorf("seed %d: %d accepted and %+v, want an outage that was survived", seed, len(all.sent), s)
			}
		})
	}
}

func retried(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for range 20 {
		if err = f(); err == nil {
			return
		}
		time.Sleep(time.Second)
	}
	t.Fatal(err)
}

// a producer and a listener through outages of the primary account of every kind. What was accepted is handled or waits in
// a backlog queue; the listener receives from the primary queue alone, and works on by itself when it is back.
func TestAWholeOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("plays an hour")
	}
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{})
		jobs, all := producer.New[string](b.queue, nil), newLedger()
		l := listener.New(b.queue, all.handle, &listener.Options[string]{Logger: slog.New(slog.DiscardHandler)})
		running, stop := context.WithCancel(b.ctx)
		ended := make(chan error, 1)
		go func() { ended <- l.Run(running) }()

		var sends sync.WaitGroup
		n := 0
		for _, phase := range []struct {
			name     string
			fault    fault
			diverted bool // whether sends are diverted at its end
		}{
			{"healthy", fault{}, false},
			{"kill", fault{err: unavailable, all: true}, true},
			{"return", fault{}, false},
			{"slow", fault{takes: 3 * time.Second, all: true}, false},
			{"no answer", fault{hangs: true, acts: true, all: true}, true},
			{"still failed over, 403", fault{err: unauthorized, all: true}, true},
			{"return again", fault{}, false},
			{"503", fault{err: throttled, all: true}, false},
			{"healthy at last", fault{}, false},
		} {
			b.west.fault("orders", phase.fault)
			for range 600 {
				n++
				body := fmt.Sprint("job-", n)
				sends.Go(func() { all.send(b.ctx, jobs, body) })
				time.Sleep(200 * time.Millisecond)
			}
			if got := b.queue.State().Status == paired.FailedOver; got != phase.diverted {
				t.Errorf("%s: got %+v, want failed over: %v", phase.name, b.queue.State(), phase.diverted)
			}
		}
		sends.Wait()
		time.Sleep(time.Hour)
		synctest.Wait()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		found := map[string]int{}
		for body, messages := range all.handled {
			found[body] = len(messages)
		}
		for _, name := range b.east.names() {
			take(t, b.east.open(name), found)
		}
		all.check(t, found, b.queue.State())
		if p, err := b.west.open("orders").Properties(b.ctx); err != nil || p.Depth != 0 {
			t.Errorf("the primary queue: got %+v and %v, want it empty", p, err)
		}
		// Only a busy service makes sends fail: it is waited for, and never failed over.
		for body, err := range all.failed {
			if !errors.Is(err, queue.ErrThrottled) {
				t.Errorf("%s failed with %v, want only sends that met a busy service to fail", body, err)
			}
		}
	})
}

// worst are sends through a producer on fake time: how many failed, how many of these are in a queue all the same,
// and how many took longer than the interval and the longest wait of a producer, 16.25 s.
type worst struct{ failed, failedAndSent, slow int }

// sendThrough sends n jobs, one every 100 ms, with this time-out.
func (b *bundle) sendThrough(n int, timeout func(i int) time.Duration) (w worst) {
	b.Helper()
	var mu sync.Mutex
	failed := map[string]bool{} // guarded by mu
	var sends sync.WaitGroup
	for i := range n {
		jobs := producer.New(b.queue, &producer.Options[string]{Timeout: timeout(i)})
		sends.Go(func() {
			begin, name := time.Now(), fmt.Sprint("job-", i)
			_, err := jobs.Send(b.ctx, name, nil)
			mu.Lock()
			defer mu.Unlock()
			if failed[name] = err != nil; err != nil {
				w.failed++
			}
			if time.Since(begin) > 16250*time.Millisecond {
				w.slow++
			}
		})
		time.Sleep(100 * time.Millisecond)
	}
	sends.Wait()
	b.west.fault("orders", fault{})
	found := map[string]int{}
	take(b.T, b.west.open("orders"), found)
	for name := range found {
		if failed[name] {
			w.failedAndSent++
		}
	}
	return w
}

// after returns a time-out for all sends.
func after(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

// no request begins so late that its message is accepted after its sender has given up.
func TestNoFailedSendIsHandled(t *testing.T) {
	for name, c := range map[string]struct {
		fault   fault
		timeout func(i int) time.Duration
	}{
		"busy": {fault{err: throttled}, func(i int) time.Duration { return 10*time.Second + time.Duration(i)*10*time.Millisecond }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := setup(t, paired.Options{FailoverInterval: time.Hour})
				b.east.fault("", fault{err: unavailable})
				b.west.fault("orders", c.fault)
				time.AfterFunc(10*time.Second, func() { b.west.fault("orders", fault{takes: 300 * time.Millisecond, acts: true}) })
				w := b.sendThrough(200, c.timeout)
				t.Logf("of 200 sends %d failed, and %d of them are in the queue", w.failed, w.failedAndSent)
				if w.failed == 0 || w.failedAndSent != 0 {
					t.Errorf("got %+v, want some that failed, and none of them in the queue", w)
				}
			})
		})
	}
}

// Beside a healthy secondary account no send fails or hangs, however the primary queue fails.
func TestASendThatFailsForLongIsDiverted(t *testing.T) {
	for name, c := range map[string]struct {
		fault     fault
		bad, good time.Duration
		timeout   time.Duration
	}{
		"fails 900 ms of a second":  {fault{err: unavailable}, 900 * time.Millisecond, 100 * time.Millisecond, 0},
		"the same, 5 s for a send":  {fault{err: unavailable}, 900 * time.Millisecond, 100 * time.Millisecond, 5 * time.Second},
		"hangs 3 s of 6":            {fault{hangs: true}, 3 * time.Second, 3 * time.Second, 0},
		"hangs":                     {fault{hangs: true}, time.Hour, 0, 0},
		"hangs, and 5 s for a send": {fault{hangs: true}, time.Hour, 0, 5 * time.Second},
		"hangs, and 1 s for a send": {fault{hangs: true}, time.Hour, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := setup(t, paired.Options{})
				ctx, stop := context.WithCancel(b.ctx)
				var toggle sync.WaitGroup
				toggle.Go(func() {
					for ctx.Err() == nil {
						b.west.fault("orders", c.fault)
						waiting.For(c.bad, ctx.Done())
						b.west.fault("orders", fault{})
						waiting.For(c.good, ctx.Done())
					}
				})
				w := b.sendThrough(600, after(c.timeout))
				stop()
				toggle.Wait()
				t.Logf("of 600 sends %d failed and %d took over 16.25 s", w.failed, w.slow)
				if w.failed != 0 || w.slow != 0 {
					t.Errorf("got %+v, want none", w)
				}
			})
		})
	}
}

package claimcheck_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
)

// counted is a queue that counts requests.
type counted struct {
	queue.Queue
	updates, dequeues atomic.Int64
}

func (q *counted) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	q.updates.Add(1)
	return q.Queue.Update(ctx, l, text, visibility)
}

func (q *counted) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	q.dequeues.Add(1)
	return q.Queue.Dequeue(ctx, n, visibility)
}

// An outage of the store is like one of the handlers: the messages wait in their queue, and are not
// all fetched and given back again and again. When it is over all are done.
func TestAnOutageOfTheStoreDoesNotChurnTheQueue(t *testing.T) {
	bubble(t, func(b *bundle) {
		const jobs, hours = 500, 3
		for n := range jobs {
			b.send(job{fmt.Sprint(n), large})
		}
		q := &counted{Queue: b.queue}
		b.queue = q
		end := time.Now().Add(hours * time.Hour)
		b.store.before = func(op string) error {
			if time.Now().Before(end) {
				return blob.ErrUnavailable
			}
			return nil
		}
		o := options(b.claims)
		o.Concurrency, o.Fetch.BatchSize = 64, 32
		h := &handled{}
		var during int64
		time.AfterFunc(hours*time.Hour, func() { during = q.updates.Load() + q.dequeues.Load() })
		state := b.run(o, h.handle, (hours+1)*time.Hour)
		if len(h.jobs) != jobs || state.Outcomes[listener.Deleted] != jobs || state.Outcomes[listener.Poisoned] != 0 {
			b.Errorf("got %d runs, state %+v; want every job done once", len(h.jobs), state)
		}
		// Each comes up after as long as the outage has lasted, and later every 7.5 to 10 min.
		if most := int64(jobs * 2 * (10 + hours*60/7)); during > most {
			b.Errorf("got %d requests to the queue in the outage of %d h, want at most %d", during, hours, most)
		}
	})
}

// A store that hangs holds up a stop no longer than the settlement may take.
func TestAStoreThatHangsDoesNotHoldUpTheStop(t *testing.T) {
	for _, heedless := range []bool{false, true} {
		bubble(t, func(b *bundle) {
			for n := range 2 {
				b.send(job{fmt.Sprint(n), large})
			}
			o := options(hanging{b.claims, heedless})
			o.Grace, o.Lease.SettleTimeout = 20*time.Second, 10*time.Second
			l := listener.New(b.queue, func(context.Context, *listener.Message[job]) error {
				time.Sleep(5 * time.Second)
				return nil
			}, o)
			ctx, stop := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- l.Run(ctx) }()
			time.Sleep(2 * time.Second)
			stop()
			begin := time.Now()
			err := <-done
			if took := time.Since(begin); took > 32*time.Second {
				b.Errorf("heedless %v: Run took %v after the stop, want at most Grace, SettleTimeout and two seconds: %v", heedless, took, err)
			}
			if gone := (*listener.AbandonedError)(nil); err != nil && !errors.As(err, &gone) {
				b.Errorf("heedless %v: got %v", heedless, err)
			}
			if n := b.depth(b.queue); n != 0 {
				b.Errorf("heedless %v: got %d messages left, want none", heedless, n)
			}
			b.wantStored(2, 0)
			time.Sleep(time.Hour) // what was abandoned ends
		})
	}
}

// hanging are claims whose tombstones take half an hour.
type hanging struct {
	listener.Claims
	heedless bool // of the context
}

func (h hanging) Settled(ctx context.Context, _ string) error {
	over := ctx.Done()
	if h.heedless {
		over = nil
	}
	select {
	case <-time.After(30 * time.Minute):
		return nil
	case <-over:
		return context.Cause(ctx)
	}
}

// While the store is away or hangs, jobs that need no body go on, also when there were none before.
// The others wait and keep their attempts.
func TestSmallJobsGoOnWithoutTheStore(t *testing.T) {
	for name, hangs := range map[string]bool{"away": false, "hanging": true} {
		for _, first := range []time.Duration{0, 5 * time.Minute} {
			bubble(t, func(b *bundle) {
				const jobs, outage = 1000, time.Hour
				for n := range jobs {
					b.send(job{fmt.Sprint(n), large})
				}
				var end time.Time
				claims := b.claims
				c := stoppable{claims, func(ctx context.Context) error {
					switch {
					case time.Now().After(end):
						return nil
					case hangs:
						<-ctx.Done() // nobody notices that the connection is dead
						return ctx.Err()
					}
					return blob.ErrUnavailable
				}}
				end = time.Now().Add(outage)
				for at := first; at < outage; at += 10 * time.Second {
					time.AfterFunc(at, func() { b.send(job{fmt.Sprint("small ", at), ""}) })
				}
				var waits []time.Duration
				done := 0
				state := b.run(&listener.Options[job]{Claims: c, Logger: slog.New(slog.DiscardHandler)}, func(_ context.Context, m *listener.Message[job]) error {
					b.store.mu.Lock()
					defer b.store.mu.Unlock()
					if m.Body.Text == "" {
						waits = append(waits, time.Since(m.Enqueued))
					} else {
						done++
					}
					return nil
				}, 2*time.Hour)
				slices.Sort(waits)
				p99 := waits[len(waits)*99/100]
				t.Logf("%s, first small job after %v: %d small jobs waited %v (p99) and %v at most, %d requests", name, first, len(waits), p99, waits[len(waits)-1], state.Requests)
				few := 0 // may hang for ever, beside others that are read again
				if hangs {
					few = 12
				}
				if p99 > 2*time.Second || done < jobs-few || len(state.Failing) > 0 || state.Outcomes[listener.Poisoned] != 0 || state.Outcomes[listener.Unsettled]+state.Outcomes[listener.Lost] != 0 {
					b.Errorf("%s, first small job after %v: small jobs waited %v, %d large ones are done: %+v", name, first, p99, done, state)
				}
			})
		}
	}
}

// stoppable are claims whose bodies are read after a function has returned nil.
type stoppable struct {
	listener.Claims
	before func(context.Context) error
}

func (c stoppable) Open(ctx context.Context, claim string) ([]byte, error) {
	if err := c.before(ctx); err != nil {
		return nil, err
	}
	return c.Claims.Open(ctx, claim)
}

// A store whose every body takes a minute to read is slow and not away: all jobs are done, and none
// keeps others from being read for long.
func TestASlowStoreIsReadToTheEnd(t *testing.T) {
	for _, slots := range []int{2, 64} {
		bubble(t, func(b *bundle) {
			const jobs = 128
			for n := range jobs {
				b.send(job{fmt.Sprint(n), large})
			}
			var opened atomic.Int64
			slow := stoppable{b.claims, func(ctx context.Context) error {
				opened.Add(1)
				select {
				case <-time.After(time.Minute):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}}
			var last time.Duration
			begin := time.Now()
			o := &listener.Options[job]{Claims: slow, Concurrency: slots, Logger: slog.New(slog.DiscardHandler)}
			state := b.run(o, func(context.Context, *listener.Message[job]) error {
				b.store.mu.Lock()
				defer b.store.mu.Unlock()
				last = time.Since(begin)
				return nil
			}, 3*time.Hour)
			t.Logf("%d slots: %d jobs are done after %v, with %d downloads", slots, state.Outcomes[listener.Deleted], last, opened.Load())
			if most := time.Duration(jobs/slots)*time.Minute + 30*time.Minute; state.Outcomes[listener.Deleted] != jobs || last > most || opened.Load() > 4*jobs {
				b.Errorf("%d slots: %d jobs are done after %v, with %d downloads", slots, state.Outcomes[listener.Deleted], last, opened.Load())
			}
		})
	}
}

package poison_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

// killer kills a process at its nth request, before or after that takes effect.
type killer struct {
	mu    sync.Mutex
	until int // requests
	after bool
}

var errKilled = errors.New("the process was killed")

func (k *killer) act(request func() error) error {
	k.mu.Lock()
	k.until--
	left, after := k.until, k.after
	k.mu.Unlock()
	if left < 0 || left == 0 && !after {
		return errKilled
	}
	err := request()
	if left == 0 {
		return errKilled
	}
	return err
}

// mortal is the queue of a process that is killed.
type mortal struct {
	queue.Queue
	killer *killer
}

func (q *mortal) Properties(ctx context.Context) (p queue.Properties, err error) {
	killed := q.killer.act(func() error { p, err = q.Queue.Properties(ctx); return err })
	return p, killed
}

func (q *mortal) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (m queue.Message, err error) {
	killed := q.killer.act(func() error { m, err = q.Queue.Enqueue(ctx, text, o); return err })
	return m, killed
}

func (q *mortal) Dequeue(ctx context.Context, n int, visibility time.Duration) (batch []queue.Message, err error) {
	killed := q.killer.act(func() error { batch, err = q.Queue.Dequeue(ctx, n, visibility); return err })
	if killed != nil {
		return nil, killed
	}
	return batch, err
}

func (q *mortal) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (fresh queue.Lease, err error) {
	killed := q.killer.act(func() error { fresh, err = q.Queue.Update(ctx, l, text, visibility); return err })
	return fresh, killed
}

func (q *mortal) Delete(ctx context.Context, l queue.Lease) error {
	return q.killer.act(func() error { return q.Queue.Delete(ctx, l) })
}

// A redrive that is killed at any request, before or after that took effect, loses nothing, and
// has sent at most Parallel messages twice when another has finished.
func TestAKilledRedriveLosesNothing(t *testing.T) {
	for _, parallel := range []int{1, 3} {
		for _, after := range []bool{false, true} {
			for step, ended := 1, false; !ended; step++ {
				synctest.Test(t, func(t *testing.T) {
					m := newMorgue(t)
					const n = 9
					for i := range n {
						reason := poison.ReasonAttempts
						if i >= 6 {
							reason = poison.ReasonLost
						}
						m.bury(t, sealed(t, i, envelope.Head{Attempts: 5}), reason, nil)
					}
					k := &killer{until: step, after: after}
					o := &poison.Options{From: &mortal{m.poison, k}, To: &mortal{m.orders, k}, Parallel: parallel, Filter: poison.Filter{Reason: poison.ReasonAttempts}}
					report, _ := poison.Redrive(t.Context(), m.orders, o)
					ended = k.until > 0
					time.Sleep(time.Minute) // until the leases of the dead have ended
					o.From, o.To = nil, nil
					again, err := poison.Redrive(t.Context(), m.orders, o)
					if err != nil {
						t.Fatal(err)
					}
					ids, twice := jobs(t, drain(t, m.orders)), 0
					for _, times := range ids {
						twice += times - 1
					}
					rest := jobs(t, drain(t, m.poison))
					if len(ids) != 6 || twice > parallel || len(rest) != 3 {
						t.Errorf("killed at request %d (after it: %v), %d at a time: got %v redriven, %v left; reports %+v and %+v", step, after, parallel, ids, rest, report, again)
					}
				})
			}
		}
	}
}

// Behind a bad network, beside a second redrive and a process that takes records as they come, a
// redrive ends, and every job is in the end in its queue, in the poison queue, or with the other.
func TestRedrivesOfOneQueueAtOnceLoseNothing(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			m := newMorgue(t)
			const n = 120
			for i := range n {
				m.bury(t, sealed(t, i, envelope.Head{}), poison.ReasonAttempts, nil)
			}
			var (
				wait  sync.WaitGroup
				mu    sync.Mutex
				taken []string
			)
			for worker := range uint64(2) {
				wait.Go(func() {
					faults := &faultqueue.Options{Seed: seed*10 + worker, Every: faultqueue.Rates{LostRequest: 0.05, LostResponse: 0.05, Throttled: 0.05}}
					q := must(faultqueue.New(m.poison, faults))
					defer q.Wait()
					o := &poison.Options{From: q, To: must(faultqueue.New(m.orders, faults)), Parallel: 2, Rate: 20}
					if _, err := poison.Redrive(t.Context(), m.orders, o); err != nil && !queue.Transient(err) {
						t.Errorf("seed %d: %v", seed, err)
					}
				})
			}
			wait.Go(func() { // it knows what it has taken, and gives nothing back
				for range 10 {
					batch, err := m.poison.Dequeue(t.Context(), 2, time.Minute)
					if err != nil {
						t.Error(err)
					}
					for _, one := range batch {
						if m.poison.Delete(t.Context(), one.Lease) == nil {
							mu.Lock()
							taken = append(taken, one.Text)
							mu.Unlock()
						}
					}
					time.Sleep(time.Second)
				}
			})
			wait.Wait()
			time.Sleep(time.Hour)
			all := make(map[string]int)
			for _, texts := range [][]string{drain(t, m.orders), drain(t, m.poison), taken} {
				for id, times := range jobs(t, texts) {
					all[id] += times
				}
			}
			if len(all) != n {
				t.Errorf("seed %d: got %d jobs, want %d", seed, len(all), n)
			}
		})
	}
}

package roles

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

// M-03, M-06: a process that is killed between any two of its steps leaves totals that are right, and no batch twice in the books.
func TestAKillBetweenAnyTwoStepsLosesNothing(t *testing.T) {
	steps, stride := 0, 1
	if testing.Short() {
		stride = 7
	}
	for done := false; !done; steps += stride {
		for _, after := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.ship(w.submitter(), day1, generate(1, 60), 4) // more pieces than a portion
				dying := newPower(steps)
				dying.after = after
				p := w.start(Options{Roles: All, Group: 3}, dying)
				select {
				case <-dying.failed:
				case <-time.After(10 * time.Minute):
					done = true
				}
				p.kill()
				next := w.start(Options{Roles: All, Group: 2}, nil) // the plan stays that of the first
				w.settle()
				next.end()
				w.check()
				if t.Failed() {
					t.Logf("killed at step %d, after it: %v", steps, after)
				}
			})
			if t.Failed() {
				return
			}
		}
	}
	if steps < 100 {
		t.Errorf("a process had %d steps, want more", steps)
	}
}

// M-06: whatever fails, comes twice or late, totals are right and every batch is in the books once.
func TestFaultsOfQueuesStoreAndBooks(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				random := rand.New(rand.NewPCG(seed, 1))
				var mu sync.Mutex
				faulty := func() *power {
					p := newPower(-1)
					p.fault = func() (before, after bool) {
						mu.Lock()
						defer mu.Unlock()
						roll := random.IntN(100)
						return roll < 3, roll >= 3 && roll < 6
					}
					return p
				}
				rates := faultqueue.Rates{Throttled: 0.03, Unavailable: 0.02, LostRequest: 0.02, LostResponse: 0.03, Duplicate: 0.04, Slow: 0.02, Late: 0.02}
				queues := &faultyAccount{Account: w.account, options: faultqueue.Options{Seed: seed, Every: rates}}
				w.ship(w.submitter(), day1, generate(seed, 120), 20)
				w.ship(w.submitter(), day2, generate(seed+100, 120), 20)
				var all []*process
				for _, roles := range []Roles{All, Initiator | Worker, Controller} { // two controllers, by mistake
					all = append(all, w.startOn(queues, Options{Roles: roles, Group: 4}, faulty()))
				}
				w.settle()
				for _, p := range all {
					p.end()
				}
				queues.wait()
				last := w.start(Options{Roles: All}, nil) // late requests may have made messages
				w.settle()
				last.end()
				w.check()
			})
		})
	}
}

// faultyAccount has faults in its queues.
type faultyAccount struct {
	queue.Account
	options faultqueue.Options

	mu     sync.Mutex
	queues []*faultqueue.Queue // guarded by mu
}

func (a *faultyAccount) Open(name string) (queue.Manager, error) {
	q, err := a.Account.Open(name)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	faulty := faultqueue.New(q, &a.options)
	a.queues = append(a.queues, faulty)
	return faulty, nil
}

// wait waits for late requests.
func (a *faultyAccount) wait() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.queues {
		q.Wait()
	}
}

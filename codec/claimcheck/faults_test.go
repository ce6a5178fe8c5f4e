package claimcheck_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

// Behind a bad network to the queue and to the store, with two workers, every job that was accepted
// is done, and no message is poison because its body is gone.
func TestABadNetworkTakesNoBodyThatAMessageNeeds(t *testing.T) {
	seeds := uint64(30)
	if testing.Short() {
		seeds = 5
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		bubble(t, func(b *bundle) {
			dice, mu := rand.New(rand.NewPCG(seed, 7)), sync.Mutex{}
			b.store.before = func(string) error {
				mu.Lock()
				defer mu.Unlock()
				if dice.Float64() < 0.1 {
					return blob.ErrUnavailable
				}
				return nil
			}
			inner := b.queue
			rates := faultqueue.Rates{Throttled: 0.05, LostRequest: 0.05, LostResponse: 0.05, Duplicate: 0.05, Late: 0.05}
			network := must(faultqueue.New(inner, &faultqueue.Options{Seed: seed, Every: rates}))
			l := &ledger{accepted: map[string]bool{}, done: map[string]int{}}
			p := producer.New(network, &producer.Options[job]{Claims: b.claims})
			for i := range 40 {
				name := fmt.Sprint(i)
				_, err := p.Send(b.Context(), job{name, large}, &producer.SendOptions{JobID: name})
				l.accepted[name] = err == nil
			}
			var workers sync.WaitGroup
			for w := range 2 {
				work := *b
				work.queue = network
				o := options(b.claims)
				o.Seed = seed<<1 + uint64(w) + 1
				o.Poison.MaxAttempts, o.Poison.MaxLost = 50, 50
				o.Observer.Poisoned = func(d listener.Delivery, reason listener.PoisonReason, err error) {
					b.Errorf("seed %d: job %s is poison: %s: %v", seed, d.Job, reason, err)
				}
				workers.Go(func() { work.run(o, l.saveAndFail(dice, &mu), 2*time.Hour) })
			}
			workers.Wait()
			time.Sleep(time.Hour) // late requests arrive
			for name, accepted := range l.accepted {
				if accepted && l.done[name] == 0 {
					b.Errorf("seed %d: job %s was accepted and not done", seed, name)
				}
			}
			if left := b.depth(inner) + b.depth(inner.Sibling(poison.Suffix)); left != 0 {
				b.Errorf("seed %d: got %d messages left, want none", seed, left)
			}
		})
	}
}

// saveAndFail returns a handler that now and then saves another body, and fails.
func (l *ledger) saveAndFail(dice *rand.Rand, mu *sync.Mutex) listener.Handler[job] {
	return func(ctx context.Context, m *listener.Message[job]) error {
		mu.Lock()
		saves, fails := dice.Float64() < 0.5, dice.Float64() < 0.3
		mu.Unlock()
		if saves {
			if err := m.Save(ctx, job{m.Body.Name, m.Body.Text + "!"}); err != nil && !errors.Is(err, queue.ErrOutcomeUnknown) {
				return err
			}
		}
		if fails {
			return errors.New("broken")
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.done[m.Body.Name]++
		return nil
	}
}

package slots_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// chaos is a pool with listeners to which things happen, chosen by a seed.
type chaos struct {
	*bundle
	random  *rand.Rand
	bus     *wakeup.Bus
	slots   int // most that the pool has ever had
	ranks   int
	workers []*worker
	runs    []bool // whether the listener of the worker runs
}

// Whatever happens to members and to their queues: when it is over every message is handled, never were there more
// handlers than slots, and nothing is held at the end.
func TestNothingIsStrandedWhateverHappensToMembers(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 1
	}
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 0))
		o := &slots.SharedOptions{Slots: 2 + random.IntN(20)}
		bubble(t, o, func(b *bundle) {
			c := &chaos{bundle: b, random: random, bus: new(wakeup.Bus), slots: o.Slots, ranks: 1 + random.IntN(3)/2}
			for i := range 2 + random.IntN(7) {
				c.add(i)
			}
			for range 40 {
				c.step()
				advance(time.Duration(random.IntN(3000)) * time.Millisecond)
			}
			c.heal()
			if t.Failed() {
				t.Logf("seed %d, pool %+v", seed, *o)
			}
		})
	}
}

// add adds a worker and starts its listener.
func (c *chaos) add(i int) {
	m := &slots.MemberOptions{Weight: 1 + c.random.IntN(5), Rank: c.random.IntN(c.ranks)}
	if i == 0 && c.random.IntN(2) == 0 {
		m.Reserve = 1
	}
	w := c.worker(fmt.Sprint("member-", i), m, time.Duration(1+c.random.IntN(1500))*time.Millisecond)
	w.spread = true
	w.options.Grace, w.options.Lease.SettleTimeout = 2*time.Second, 10*time.Second
	if c.random.IntN(2) == 0 {
		w.options.Wakeups = c.bus
	}
	w.broken.Store(c.random.IntN(4) == 0) // there will be an outage
	c.workers, c.runs = append(c.workers, w), append(c.runs, true)
	w.put(50).start()
}

// step lets something happen.
func (c *chaos) step() {
	i := c.random.IntN(len(c.workers))
	w := c.workers[i]
	switch c.random.IntN(11) {
	case 0:
		w.queue.fail(queue.ErrThrottled)
	case 1:
		w.queue.fail(&queue.Error{Kind: queue.ErrLimited, RetryAfter: time.Duration(c.random.IntN(3000)) * time.Millisecond})
	case 2, 3:
		w.queue.fail(nil)
	case 4:
		w.run.Pause()
	case 5, 6:
		w.run.Resume()
	case 7:
		n := 1 + c.random.IntN(20)
		if c.shared.Resize(n) == nil {
			c.slots = max(c.slots, n)
		}
	case 8:
		c.restart(i)
	case 9:
		w.queue.latency.Store(int64(time.Duration(c.random.IntN(600)) * time.Millisecond))
	case 10:
		w.put(20)
		if w.options.Wakeups != nil {
			_ = c.bus.Publish(c.Context(), w.queue.Name(), 0, time.Time{})
		}
	}
}

// restart ends a listener, or starts another one with the same member.
func (c *chaos) restart(i int) {
	w := c.workers[i]
	if c.runs[i] {
		w.stop()
		if err := <-w.done; err != nil && !errors.Is(err, context.Canceled) {
			c.Errorf("%s: got error %v, want nil", w.name, err)
		}
	} else {
		w.start()
	}
	c.runs[i] = !c.runs[i]
}

// heal ends all that was wrong, and checks that nothing is left.
func (c *chaos) heal() {
	for i, w := range c.workers {
		if !c.runs[i] {
			c.restart(i)
		}
		synctest.Wait()
		w.queue.fail(nil)
		w.broken.Store(false)
		w.run.Resume()
	}
	advance(time.Hour)
	for _, w := range c.workers {
		if p, err := w.queue.Properties(c.Context()); err != nil || p.Depth != 0 {
			c.Errorf("%s: got %d messages left, %v; want none. Its state is %+v, of the slots %+v", w.name, p.Depth, err, w.run.State(), c.shared.State())
		}
	}
	if most := c.most.Load(); most > int64(c.slots) {
		c.Errorf("got %d handlers at once, want at most %d", most, c.slots)
	}
	for _, w := range c.workers {
		w.end()
	}
	if st := c.shared.State(); st.Held != 0 || len(st.Members) != 0 {
		c.Errorf("got state %+v at the end, want nothing held and no member", st)
	}
}

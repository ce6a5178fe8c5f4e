package slots_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/internal/suitetest"
)

// crowd is a pool with many members.
type crowd struct {
	members, slots int
	takes          []time.Duration // of the handlers; one after the other
	weights        []int           // the same; nil for 1
	reserved       int             // slots that another member reserves
}

// crowdFigures are those of one measurement.
type crowdFigures struct {
	least, most float64 // handler time for a weight of 1, as a part of the average
	used        float64 // of the slots
	jobs        int64
	requests    float64 // dequeues and readings of the depth, for each job, or for each member and minute
}

// busy measures members that always have a backlog.
func (c crowd) busy(t *testing.T, warm, over time.Duration) (f crowdFigures) {
	c.run(t, 3, func(all []*worker) { f = c.measure(all, warm, over) })
	f.requests /= float64(f.jobs)
	return f
}

// idle measures members with empty queues.
func (c crowd) idle(t *testing.T, over time.Duration) (f crowdFigures) {
	c.run(t, 0, func(all []*worker) { f = c.measure(all, time.Minute, over) })
	f.requests /= float64(c.members) * over.Minutes()
	return f
}

// run runs f with members that have so many messages.
func (c crowd) run(t *testing.T, messages int, f func([]*worker)) {
	bubble(t, &slots.SharedOptions{Slots: c.slots}, func(b *bundle) {
		b.shared.Member(&slots.MemberOptions{Reserve: c.reserved})
		var all []*worker
		for i := range c.members {
			m := &slots.MemberOptions{}
			if c.weights != nil {
				m.Weight = c.weights[i%len(c.weights)]
			}
			w := b.worker(fmt.Sprintf("member-%d", i), m, c.takes[i%len(c.takes)])
			w.spread, w.refill, w.options.Seed = true, messages > 0, uint64(i)
			all = append(all, w.put(messages*8).start())
		}
		f(all)
		for _, w := range all {
			w.run.Halt()
		}
		for _, w := range all {
			w.end()
		}
		if most := b.most.Load(); most > int64(c.slots) {
			t.Errorf("got %d handlers at once, want at most %d", most, c.slots)
		}
	})
}

// measure measures for a while, after another one.
func (c crowd) measure(all []*worker, warm, over time.Duration) (f crowdFigures) {
	requests := func() (n int64) {
		for _, w := range all {
			n += w.queue.dequeues.Load() + w.queue.readings.Load()
		}
		return n
	}
	advance(warm)
	before := requests()
	spent := make([]float64, len(all))
	for i, w := range all {
		spent[i] = -float64(w.spent.Load())
		f.jobs -= w.handled.Load()
	}
	advance(over)
	f.requests = float64(requests() - before)
	sum, weights := 0.0, 0
	for i, w := range all {
		f.jobs += w.handled.Load()
		spent[i] += float64(w.spent.Load())
		sum += spent[i]
		weight := 1
		if c.weights != nil {
			weight = c.weights[i%len(c.weights)]
		}
		weights += weight
		spent[i] /= float64(weight)
	}
	average := sum / float64(weights)
	f.least, f.most = spent[0]/average, spent[0]/average
	for _, s := range spent {
		f.least, f.most = min(f.least, s/average), max(f.most, s/average)
	}
	f.used = sum / over.Seconds() / float64(time.Second) / float64(c.slots-c.reserved)
	return f
}

// With more members than slots, members with a backlog take turns: each has its share of the handler time, however long
// its handlers take, and a message costs few more requests than with a slot for each member (S-02, S-06).
func TestMoreMembersThanSlotsTakeTurns(t *testing.T) {
	second := []time.Duration{time.Second}
	mixed := []time.Duration{200 * time.Millisecond, time.Second, 4 * time.Second}
	for _, c := range []struct {
		name string
		crowd
		over   time.Duration
		factor float64 // between a member's handler time for its weight and the average, at most
		long   bool
	}{
		{"a slot for each", crowd{members: 20, slots: 20, takes: second}, 300 * time.Second, 1.01, false},
		{"beside a reserve", crowd{members: 12, slots: 20, takes: mixed, reserved: 17}, 1000 * time.Second, 1.1, false},
		{"many", crowd{members: 500, slots: 20, takes: second}, 300 * time.Second, 1.25, true},
		{"weights", crowd{members: 100, slots: 4, takes: mixed, weights: []int{1, 2, 4, 8}}, 1000 * time.Second, 1.25, true},
		{"half more", crowd{members: 30, slots: 20, takes: second}, 300 * time.Second, 1.1, true},
		{"mixed", crowd{members: 250, slots: 10, takes: mixed}, 500 * time.Second, 1.4, true},
		{"long", crowd{members: 60, slots: 4, takes: []time.Duration{time.Second, time.Minute}}, 5_000 * time.Second, 1.25, true},
	}[:suitetest.Size(4, 7)] {
		t.Run(c.name, func(t *testing.T) {
			if c.long {
				skipLong(t)
			}
			f := c.busy(t, c.over/5, c.over)
			t.Logf("handler time of a member %.2f to %.2f of its share; %.1f %% of the slots used; %.2f requests a job", f.least, f.most, 100*f.used, f.requests)
			if f.least < 1/c.factor || f.most > c.factor {
				t.Errorf("got %.2f to %.2f of the share, want it within a factor of %v", f.least, f.most, c.factor)
			}
			if f.used < 0.95 || f.requests > 1.5 {
				t.Errorf("got %.3f of the slots used and %.2f requests a job, want at least 0.95 and at most 1.5", f.used, f.requests)
			}
		})
	}
}

// Members with empty queues poll as often as with a slot for each, and leave the slots to those with work.
func TestIdleMembersBeyondTheSlotsPollAsEver(t *testing.T) {
	skipLong(t)
	takes := []time.Duration{time.Second}
	each := crowd{members: 20, slots: 20, takes: takes}.idle(t, time.Minute).requests
	many := crowd{members: 500, slots: 20, takes: takes}.idle(t, time.Minute).requests
	t.Logf("%.1f requests for each member and minute with a slot for each, %.1f for 500 members on 20 slots", each, many)
	if many > 1.05*each || many < each/1.05 {
		t.Errorf("got %.1f requests for each member and minute, want about %.1f", many, each)
	}
	c := crowd{members: 500, slots: 20, takes: takes}
	c.run(t, 0, func(all []*worker) {
		for _, w := range all[:25] {
			w.refill = true
			w.put(40)
		}
		f := c.measure(all[:25], 30*time.Second, time.Minute)
		t.Logf("25 busy members beside 475 idle ones: %.2f to %.2f of the share, %.1f %% of the slots used", f.least, f.most, 100*f.used)
		if f.used < 0.7 || f.least < 0.9 {
			t.Errorf("got %.3f of the slots used by the busy members and %.2f of the share, want at least 0.7 and 0.9", f.used, f.least)
		}
	})
}

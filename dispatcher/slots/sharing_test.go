package slots_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
)

// A member that is alone with work uses every slot that nobody has reserved.
func TestOneMemberAloneUsesAllSlotsButReserves(t *testing.T) {
	bubble(t, &slots.SharedOptions{Slots: 100}, func(b *bundle) {
		idle := b.worker("idle", &slots.MemberOptions{Reserve: 7}, time.Hour)
		busy := b.worker("busy", nil, time.Hour).put(200).start()
		idle.start()
		least, most := 100, 0
		for range 1000 { // an idle member takes one of its reserve to poll, or none
			advance(7 * time.Millisecond)
			if n := b.held("busy"); time.Since(b.begin) > 5*time.Second {
				least, most = min(least, n), max(most, n)
			}
		}
		if least != 93 || most != 93 {
			t.Errorf("got %d…%d slots for the only member with work, want 93", least, most)
		}
		busy.halt()
		idle.end()
	})
}

// The dequeues of idle members hold few slots, also while the service takes long to respond, so that a
// member with work has the others.
func TestIdleMembersWithSlowDequeuesLeaveTheSlotsToOthers(t *testing.T) {
	bubble(t, &slots.SharedOptions{Slots: 64}, func(b *bundle) {
		var idle []*worker
		for _, name := range []string{"one", "two", "three", "four", "five", "six", "seven"} {
			w := b.worker(name, nil, time.Second)
			w.queue.latency.Store(int64(10 * time.Second))
			idle = append(idle, w.start())
		}
		advance(time.Minute)
		busy := b.worker("busy", nil, time.Second).put(5000).start()
		advance(10 * time.Second)
		held := averages(40*time.Second, busy)[0]
		if want := 64.0 - 2*7; held < want { // one for each poll; a loop more each, at most
			t.Errorf("got %.1f slots for the member with work, want at least %.0f of 64", held, want)
		}
		for _, w := range append(idle, busy) {
			w.end()
		}
	})
}

// The same in an outage of the service, when dequeues fail after a time-out.
func TestMembersWhoseDequeuesFailLeaveTheSlotsToOthers(t *testing.T) {
	bubble(t, &slots.SharedOptions{Slots: 64}, func(b *bundle) {
		down := b.worker("down", nil, time.Second).put(5000).start()
		busy := b.worker("busy", nil, time.Second).put(10_000).start()
		advance(10 * time.Second)
		down.queue.fail(queue.ErrThrottled)
		down.queue.latency.Store(int64(30 * time.Second))
		advance(time.Minute) // the first of them may have asked for a full batch
		held := averages(40*time.Second, busy)[0]
		if want := 54.0; held < want {
			t.Errorf("got %.1f slots beside a member whose queue does not respond, want at least %.0f of 64", held, want)
		}
		down.queue.fail(nil)
		down.queue.latency.Store(0)
		down.end()
		busy.end()
	})
}

// A member that comes while others hold every slot gets one when the first of their handlers returns.
func TestAMemberThatJoinsGetsTheNextSlot(t *testing.T) {
	bubble(t, &slots.SharedOptions{Slots: 32}, func(b *bundle) {
		busy := b.worker("busy", &slots.MemberOptions{Weight: 1000}, time.Hour).put(100)
		busy.release, busy.options.Concurrency = make(chan struct{}), 64 // it wants more, too
		busy.start()
		advance(10 * time.Second)
		if n := b.held("busy"); n != 32 {
			t.Fatalf("got %d slots for the first member, want all 32", n)
		}
		late := b.worker("late", nil, time.Second).put(1).start()
		advance(time.Minute)
		if n := late.handled.Load(); n != 0 {
			t.Fatalf("got %d messages handled without a slot, want none", n)
		}
		busy.release <- struct{}{}
		advance(10*time.Millisecond + time.Second)
		if n := late.handled.Load(); n != 1 {
			t.Errorf("got %d messages handled when a slot was free, want 1", n)
		}
		busy.halt()
		late.end()
	})
}

// Nobody starves beside a member with a far greater weight.
func TestEveryMemberOfARankHasASlot(t *testing.T) {
	bubble(t, &slots.SharedOptions{Slots: 4}, func(b *bundle) {
		heavy := b.worker("heavy", &slots.MemberOptions{Weight: 1000}, time.Second).put(2000).start()
		light := b.worker("light", nil, time.Second).put(2000).start()
		advance(10 * time.Second)
		before := light.handled.Load()
		advance(100 * time.Second)
		if n := light.handled.Load() - before; n < 45 { // a slot that is free for half of the time, at least
			t.Errorf("got %d messages of the light member handled in 100 s, want about 95", n)
		}
		heavy.end()
		light.end()
	})
}

// The slots that come free while a member's dequeue is sent are not lost to it: they would go to members
// that wait then, and those with long handlers would soon have them all.
func TestLongHandlersDoNotGatherAllSlots(t *testing.T) {
	if testing.Short() {
		t.Skip("plays hours")
	}
	for rank, name := range []string{"of one rank", "of a later rank"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, &slots.SharedOptions{Slots: 20}, func(b *bundle) {
				short := b.worker("short", nil, 50*time.Millisecond).put(24_000)
				short.spread = true
				short.start()
				advance(5 * time.Second)
				long := b.worker("long", &slots.MemberOptions{Rank: rank}, time.Hour).put(100).start()
				advance(30 * time.Second)
				if held := averages(15*time.Second, short)[0]; held < 7 {
					t.Errorf("got %.1f slots for the member with short handlers, want about 10 or more of 20", held)
				}
				short.halt()
				long.halt()
			})
		})
	}
}

// A rank that always has work leaves the next one nothing but its reserve.
func TestRanksAreServedInOrder(t *testing.T) {
	bubble(t, &slots.SharedOptions{Slots: 20}, func(b *bundle) {
		first := b.worker("first", &slots.MemberOptions{Rank: 1}, time.Second).put(800)
		second := b.worker("second", &slots.MemberOptions{Rank: 2, Reserve: 3}, time.Second).put(2000)
		third := b.worker("third", &slots.MemberOptions{Rank: 3, Weight: 1000}, time.Second).put(2000)
		workers := []*worker{third.start(), second.start(), first.start()}
		advance(10 * time.Second)
		held := averages(20*time.Second, first, second, third)
		if held[0] < 15 || held[1] > 4 || held[2] > 0.5 {
			t.Errorf("got %.1f slots while the first has work, want about 17, 3 and 0", held)
		}
		for first.handled.Load() < 800 {
			advance(time.Second)
		}
		advance(10 * time.Second)
		held = averages(20*time.Second, first, second, third)
		// The second does not ask for the last two of its Concurrency, because its MinFetch is three.
		if held[0] > 2 || held[1] < 13 || held[2] > 6 {
			t.Errorf("got %.1f slots while the first has none, want about 0, 17 and 3", held)
		}
		for _, w := range workers {
			w.end()
		}
	})
}

// A member whose work fits its reserve never waits for a slot, whatever the others do (V-02).
func TestWorkThatFitsItsReserveDoesNotWait(t *testing.T) {
	bubble(t, &slots.SharedOptions{Slots: 32}, func(b *bundle) {
		// Both are members before either begins: a member that is alone may take every slot.
		critical := b.worker("critical", &slots.MemberOptions{Reserve: 4}, time.Second)
		flood := b.worker("flood", &slots.MemberOptions{Weight: 1000}, time.Hour).put(500).start()
		critical.options.Fetch.Idle = listener.Idle{Max: 100 * time.Millisecond}
		critical.start()
		advance(10 * time.Second)
		for range 100 {
			begin := time.Now()
			before := critical.handled.Load()
			critical.put(3)
			for critical.handled.Load() < before+3 {
				time.Sleep(time.Millisecond)
			}
			// A wait after an empty poll, and a dequeue that was in flight when they came and the next.
			if took := time.Since(begin) - critical.takes; took > 110*time.Millisecond+30*time.Millisecond {
				t.Fatalf("three messages waited for %v with four slots in reserve", took)
			}
		}
		if n := b.held("flood"); n != 28 {
			t.Errorf("got %d slots for the others, want 28", n)
		}
		flood.halt()
		critical.end()
	})
}

// A member in an outage of its handlers holds nothing between its probes, and a paused one nothing at all.
func TestMembersThatDoNotFetchHoldNothing(t *testing.T) {
	bubble(t, &slots.SharedOptions{Slots: 32}, func(b *bundle) {
		broken := b.worker("broken", nil, 0)
		broken.result = errors.New("the database is down")
		broken.put(2000).start()
		paused := b.worker("paused", nil, time.Second).put(2000).start()
		advance(20 * time.Second)
		paused.run.Pause()
		busy := b.worker("busy", nil, time.Second).put(5000).start()
		advance(20 * time.Second)
		held := averages(60*time.Second, broken, paused, busy)
		if held[0] > 0.1 || held[1] != 0 || held[2] < 28 {
			t.Errorf("got %.2f slots, want 0 for the broken and the paused one, and nearly 32 for the other", held)
		}
		paused.run.Resume()
		advance(20 * time.Second)
		if held := averages(20*time.Second, paused, busy); held[0] < 14 || held[1] < 14 {
			t.Errorf("got %.2f slots after the pause, want about 16 each", held)
		}
		for _, w := range []*worker{broken, paused, busy} {
			w.end()
		}
	})
}

// A listener that ends, in whatever way, returns what it held, and a handler that it abandoned returns
// nothing a second time.
func TestALeavingMemberReturnsItsSlots(t *testing.T) {
	bubble(t, &slots.SharedOptions{Slots: 16}, func(b *bundle) {
		stuck := b.worker("stuck", nil, time.Hour).put(100)
		stuck.release, stuck.deaf = make(chan struct{}), true
		stuck.options.Grace, stuck.options.Lease.SettleTimeout = time.Second, time.Second
		stuck.start()
		advance(10 * time.Second)
		next := b.worker("next", nil, time.Hour).put(100).start()
		advance(10 * time.Second)
		if n := b.held("stuck"); n != 16 {
			t.Fatalf("got %d slots for the first member, want 16", n)
		}
		stuck.stop()
		abandoned := (*listener.AbandonedError)(nil)
		if err := <-stuck.done; !errors.As(err, &abandoned) || len(abandoned.Messages) != 16 {
			t.Fatalf("got error %v, want 16 messages named", err)
		}
		advance(10 * time.Second)
		if n := b.held("next"); n != 16 {
			t.Errorf("got %d slots for the other member, want all 16", n)
		}
		close(stuck.release)
		synctest.Wait()
		if st := b.shared.State(); st.Held != 16 || len(st.Members) != 1 {
			t.Errorf("got state %+v after the abandoned handlers returned, want one member with 16 slots", st)
		}
		next.halt()
		if st := b.shared.State(); st.Held != 0 || len(st.Members) != 0 {
			t.Errorf("got state %+v at the end, want nothing held and no member", st)
		}
	})
}

// A listener that the service refuses leaves the pool too.
func TestAListenerThatFailsLeaves(t *testing.T) {
	bubble(t, &slots.SharedOptions{Slots: 16}, func(b *bundle) {
		w := b.worker("refused", &slots.MemberOptions{Reserve: 16}, time.Second)
		w.queue.fail(queue.ErrUnauthorized)
		w.start()
		if err := <-w.done; !errors.Is(err, queue.ErrUnauthorized) {
			t.Fatalf("got error %v, want that of the service", err)
		}
		if st := b.shared.State(); st.Held != 0 || len(st.Members) != 0 {
			t.Errorf("got state %+v, want nothing held and no member", st)
		}
		again := b.worker("again", &slots.MemberOptions{Reserve: 16}, time.Second).put(5).start()
		advance(10 * time.Second)
		if n := again.handled.Load(); n != 5 {
			t.Errorf("got %d messages handled by the next member, want 5", n)
		}
		again.end()
	})
}

// Concurrency stays the listener's own bound, and so when it is changed.
func TestConcurrencyBoundsAMember(t *testing.T) {
	bubble(t, &slots.SharedOptions{Slots: 40}, func(b *bundle) {
		w := b.worker("one", nil, time.Second).put(5000)
		w.options.Concurrency = 10
		w.start()
		advance(10 * time.Second)
		if held := averages(20*time.Second, w)[0]; held > 10 || held < 9 {
			t.Errorf("got %.1f slots with a concurrency of 10, want that many", held)
		}
		if err := w.run.Configure(listener.Settings{Concurrency: 100}); err != nil {
			t.Fatal(err)
		}
		advance(60 * time.Second)
		if held := averages(20*time.Second, w)[0]; held > 40 || held < 36 {
			t.Errorf("got %.1f slots with a concurrency of 100, want the 40 of the pool", held)
		}
		w.end()
	})
}

// More slots come into use at once; fewer as handlers return.
func TestAPoolCanBeResizedWhileItRuns(t *testing.T) {
	bubble(t, &slots.SharedOptions{Slots: 8}, func(b *bundle) {
		w := b.worker("one", nil, 10*time.Second).put(1000)
		w.options.Concurrency, w.spread = 100, true
		w.start()
		for _, slots := range []int{8, 50, 3, 20} {
			if err := b.shared.Resize(slots); err != nil {
				t.Fatal(err)
			}
			advance(25 * time.Second)
			most, sum := 0, 0
			for range 1000 {
				advance(17 * time.Millisecond)
				n := b.held("one")
				most, sum = max(most, n), sum+n
			}
			if most != slots || sum < slots*1000*3/4 {
				t.Errorf("got %d slots in use at most and %d on average, want %d", most, sum/1000, slots)
			}
		}
		w.end()
	})
}

// A MinFetch beyond what the others leave delays a dequeue by the linger, and never for good.
func TestAMinFetchThatCannotBeHadEndsWithTheLinger(t *testing.T) {
	bubble(t, &slots.SharedOptions{Slots: 32}, func(b *bundle) {
		other := b.worker("other", nil, 24*time.Hour).put(28)
		other.options.Concurrency = 28
		other.start()
		advance(10 * time.Second)
		w := b.worker("one", nil, time.Second).put(100)
		w.options.Fetch.MinFetch, w.options.Fetch.Linger = 20, 500*time.Millisecond
		w.start()
		advance(60 * time.Second)
		if n := w.handled.Load(); n != 100 {
			t.Errorf("got %d messages handled with 4 slots, want 100", n)
		}
		other.halt()
		w.end()
	})
}

// Two listeners cannot have the same member at once, but one after the other.
func TestAMemberIsForOneListenerAtATime(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		first := b.worker("first", nil, time.Second).start()
		synctest.Wait()
		second := b.worker("second", nil, time.Second)
		second.options.Slots = first.member
		second.start()
		wantError(t, <-second.done, "first", "in use by a listener", "test/second")
		if err := first.run.Run(b.Context()); err == nil {
			t.Error("a second run: got no error, want one")
		} else {
			wantError(t, err, "has already run")
		}
		first.end()
		second.put(1).start()
		advance(10 * time.Second)
		if n := second.handled.Load(); n != 1 {
			t.Errorf("got %d messages handled by the second listener, want 1", n)
		}
		second.end()
	})
}

func TestOptionsThatSharedSlotsCannotGiveAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		shared slots.SharedOptions
		before []slots.MemberOptions
		member slots.MemberOptions
		want   []string
	}{
		"weight":          {member: slots.MemberOptions{Weight: -1}, want: []string{`member "late"`, "weight -1"}},
		"large weight":    {member: slots.MemberOptions{Weight: 2_000_000}, want: []string{"weight 2000000"}},
		"reserve":         {member: slots.MemberOptions{Reserve: -2}, want: []string{"reserve -2"}},
		"both":            {member: slots.MemberOptions{Weight: -1, Reserve: -2}, want: []string{"weight -1", "reserve -2"}},
		"reserves":        {shared: slots.SharedOptions{Slots: 8}, before: []slots.MemberOptions{{Reserve: 5}}, member: slots.MemberOptions{Reserve: 4}, want: []string{`"late"`, "of 8 shared slots", "reserve 9"}},
		"single reserve":  {shared: slots.SharedOptions{Slots: 8}, member: slots.MemberOptions{Reserve: 9}, want: []string{"reserve 9"}},
		"nothing left":    {shared: slots.SharedOptions{Slots: 8}, before: []slots.MemberOptions{{Reserve: 8}}, want: []string{"all 8 shared slots", "without a reserve"}},
		"reserves of all": {shared: slots.SharedOptions{Slots: 8}, before: []slots.MemberOptions{{}}, member: slots.MemberOptions{Reserve: 8}, want: []string{"all 8 shared slots"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, &c.shared, func(b *bundle) {
				for i := range c.before {
					b.shared.Member(&c.before[i])
				}
				w := b.worker("late", &c.member, time.Second).start()
				wantError(t, <-w.done, append(c.want, "listener of test/late")...)
				if n := w.queue.dequeues.Load(); n != 0 {
					t.Errorf("got %d dequeues, want none", n)
				}
				if st := b.shared.State(); len(st.Members) != len(c.before) {
					t.Errorf("got %d members, want %d: one that is refused takes no part", len(st.Members), len(c.before))
				}
			})
		})
	}
}

func TestThereIsOneSharedSlotAtLeast(t *testing.T) {
	p, err := slots.NewShared(&slots.SharedOptions{Slots: -3})
	if p != nil {
		t.Error("got a pool besides the error")
	}
	wantError(t, err, "share -3 slots")
}

// A nil pointer is not "no pool": the listener would run without the limit that its program wants.
func TestANilMemberIsRefused(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		w := b.worker("one", nil, time.Second)
		w.options.Slots = (*slots.Member)(nil)
		w.start()
		wantError(t, <-w.done, "Slots is a nil *slots.Member")
	})
}

// A reserve stays free for a member that begins after others have taken the rest, and a member whose
// listener has ended reserves nothing.
func TestAReserveHoldsFromTheStart(t *testing.T) {
	bubble(t, &slots.SharedOptions{Slots: 16}, func(b *bundle) {
		late := b.worker("late", &slots.MemberOptions{Reserve: 6}, time.Second)
		flood := b.worker("flood", nil, time.Hour).put(100).start()
		advance(10 * time.Second)
		if n := b.held("flood"); n != 10 {
			t.Fatalf("got %d slots for the first listener, want 10", n)
		}
		late.put(6).start()
		advance(1500 * time.Millisecond)
		if n := late.handled.Load(); n != 6 {
			t.Errorf("got %d messages handled at once, want 6", n)
		}
		late.end()
		advance(10 * time.Second)
		if n := b.held("flood"); n != 16 {
			t.Errorf("got %d slots after the other has left, want 16", n)
		}
		// Now it comes back, and has to wait for what it reserves.
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		again := listener.New(late.queue, late.handle, &late.options)
		if err := again.Run(ctx); err != nil {
			t.Errorf("got error %v, want none: the member may be used again", err)
		}
		flood.halt()
	})
}

// An idle member asks for few messages. That it gets all of them does not mean that there are many: the depth
// is not read for each message on an idle queue.
func TestAMessageOnAnIdleQueueCostsNoReadingOfTheDepth(t *testing.T) {
	bubble(t, &slots.SharedOptions{Slots: 16}, func(b *bundle) {
		other := b.worker("other", nil, time.Second).start()
		w := b.worker("one", nil, 10*time.Millisecond).start()
		advance(5 * time.Second)
		before := w.queue.readings.Load()
		for range 15 {
			w.put(1)
			advance(3 * time.Second)
		}
		if n := w.queue.readings.Load() - before; n > 2 || w.handled.Load() != 15 { // the flag of a pause is read too
			t.Errorf("got %d readings for %d messages, want at most 2 for 15", n, w.handled.Load())
		}
		w.put(200)
		advance(5 * time.Second)
		if n := w.queue.readings.Load() - before; n < 1 || w.handled.Load() != 215 {
			t.Errorf("got %d readings and %d messages after a burst, want some and 215", n, w.handled.Load())
		}
		w.end()
		other.end()
	})
}

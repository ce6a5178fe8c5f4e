package listener

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/dispatcher/slots"
)

// occupy takes slots of a pool for another member, and returns it.
func (b *bundle) occupy(p *slots.Shared, slots int) *slots.Member {
	b.Helper()
	other := p.Member(nil)
	if err := other.Join(make(chan struct{}, 1)); err != nil {
		b.Fatal(err)
	}
	if n, _ := other.Take(dispatcher.SlotRequest{Least: 1, Most: slots, Likely: slots}); n != slots {
		b.Fatalf("got %d slots for another member, want %d", n, slots)
	}
	return other
}

// A member of a full pool that hears of work passes it on, because it does not get to it, and waits for a slot: that
// is all that it waits for. While no loop of it runs it holds none.
func TestAMemberOfAFullPoolPassesAnEventOn(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.Fetch.SafetyPoll = noSafety
		p := must(slots.NewShared(&slots.SharedOptions{Slots: 4}))
		o.Slots = p.Member(nil)
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Second)
		for round := range 3 {
			b.mustBeIdle(l)
			if held := p.State().Held; held != 0 {
				b.Fatalf("round %d: got %d slots held by an idle member, want none", round, held)
			}
			other := b.occupy(p, 4)
			before := b.dequeues()
			source.called()
			b.put(1)
			b.publish(source)
			advance(time.Hour)
			if calls, sent := source.called(), b.dequeues()-before; !slices.Equal(calls, []string{"Ready(false)", "More"}) || sent != 0 {
				b.Errorf("round %d: got calls %v and %d dequeues in a full pool, want Ready(false), More, and none", round, calls, sent)
			}
			other.Free(1)
			synctest.Wait() // no time passes
			if n := l.State().Outcomes[Deleted]; n != int64(round+1) {
				b.Errorf("round %d: got %d jobs done when a slot was free, want %d", round, n, round+1)
			}
			advance(time.Hour)
			if calls, sent := source.called(), b.dequeues()-before; !slices.Equal(calls, []string{"Ready(true)"}) || sent != 2 {
				b.Errorf("round %d: got calls %v and %d dequeues with a free slot, want Ready(true) and 2", round, calls, sent)
			}
			other.Leave()
		}
		b.mustFinish()
	})
}

// Batches that are full because the pool has few slots are the only sign of a backlog that such a member has.
// When its slots are taken another instance is woken for it.
func TestAMemberWithABacklogAndNoSlotsWakesAnotherInstance(t *testing.T) {
	for messages, want := range map[int][]string{10: {"Ready(false)", "More"}, 3: nil} {
		bubble(t, func(b *bundle) {
			b.put(messages)
			source := connected()
			o := wakeOptions(source)
			o.Fetch.SafetyPoll = noSafety
			p := must(slots.NewShared(&slots.SharedOptions{Slots: 40}))
			o.Slots = p.Member(nil)
			other := b.occupy(p, 36)
			release := make(chan struct{})
			l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
				select {
				case <-release:
				case <-ctx.Done():
				}
				return nil
			}, o)
			b.run(l)
			advance(time.Minute)
			if calls := source.called(); !slices.Equal(calls, want) || l.State().Running != min(messages, 4) {
				b.Errorf("%d messages for 4 slots: got calls %v with %d running, want %v", messages, calls, l.State().Running, want)
			}
			close(release)
			advance(time.Minute)
			if n := l.State().Outcomes[Deleted]; n != int64(messages) {
				b.Errorf("%d messages: got %d handled", messages, n)
			}
			b.mustFinish()
			other.Leave()
		})
	}
}

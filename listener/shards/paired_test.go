package shards_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher/dedupe"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/listener/shards"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/paired"
	"github.com/millrace/millrace/queue/sharded"
	"github.com/millrace/millrace/wakeup"
)

// told passes events on and remembers them.
type told struct {
	wakeup.Publisher

	mu     sync.Mutex
	events []event // guarded by mu
}

func (t *told) Publish(ctx context.Context, q queue.Name, bytes int64, due time.Time) error {
	t.mu.Lock()
	t.events = append(t.events, event{q, bytes, due})
	t.mu.Unlock()
	return t.Publisher.Publish(ctx, q, bytes, due)
}

// take returns the queues of the events since the last time.
func (t *told) take() (names []queue.Name) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.events {
		names = append(names, e.Queue)
	}
	t.events = nil
	return names
}

// pair pairs each of the shards with two backlog queues in another account. Nothing can be sent to the shards
// themselves between the instants.
func (b *bundle) pair(all []queue.Queue, from, until time.Duration) (pairs []*paired.Queue, queues []queue.Queue) {
	b.Helper()
	for i, q := range all {
		west := must(faultqueue.New(q, &faultqueue.Options{Phases: []faultqueue.Phase{{
			From: from, For: until - from, Faults: map[faultqueue.Op]faultqueue.Rates{faultqueue.Enqueue: {Unavailable: 1}},
		}}}))
		east := b.engine.Queue(queue.Name{Account: "east", Queue: name(i).Queue})
		p := must(paired.New(west, east, &paired.Options{Backlogs: 2, Logger: slog.New(slog.DiscardHandler)}))
		if err := p.Pair(b.Context()); err != nil {
			b.Fatal(err)
		}
		pairs, queues = append(pairs, p), append(queues, p)
	}
	return pairs, queues
}

// S-02, R-05: shards that are paired queues, with wake-ups. In an outage of their account messages are diverted. Their
// events name the backlog queue, so that no worker wakes for what it cannot take yet; their depth is read and
// they are cancelled there. What has come home is handled at once if the syphon publishes an event, in the shard that it was sent to.
func TestShardsMayBePairedQueues(t *testing.T) {
	bubble(t, func(b *bundle) {
		const outage, over = time.Minute, 6 * time.Minute
		pairs, all := b.pair(b.shards(2), outage, over)
		q, err := sharded.New(all, &sharded.Options{Seed: 1, Place: sharded.ByKey})
		if err != nil {
			t.Fatal(err)
		}
		bus := new(wakeup.Bus)
		events := &told{Publisher: bus}
		o := b.options()
		o.Listener.Wakeups, o.Listener.Fetch.SafetyPoll = bus, -1
		r := b.run(must(shards.New(q.Shards(), b.handle, o)))
		p := producer.New(q, &producer.Options[job]{Wakeups: events, WakeupDepth: 1, OnWakeupError: func(err error) { t.Error(err) }})
		send := func(n int, delay time.Duration) producer.Sent {
			t.Helper()
			synctest.Wait() // no worker is taking what came before
			sent, err := p.Send(b.Context(), job{n}, &producer.SendOptions{JobID: fmt.Sprint("job-", n), Key: fmt.Sprint(n), Delay: delay})
			if err != nil {
				t.Fatal(err)
			}
			if got := events.take(); !slices.Equal(got, []queue.Name{sent.Queue}) {
				t.Errorf("job %d is in %v: got events for %v, want one for that queue", n, sent.Queue, got)
			}
			return sent
		}
		advance(10 * time.Second)
		for n := range 10 {
			if sent := send(n, 0); sent.Queue.Account != "test" {
				t.Errorf("job %d went to %v, want a shard", n, sent.Queue)
			}
		}
		advance(time.Second)
		if got := len(b.jobs()); got != 10 {
			t.Errorf("got %d jobs at once, want the workers woken for all 10", got)
		}

		advance(time.Until(b.begin.Add(outage)))
		for n := 10; n < 14; n++ { // with keys of both shards, which fail over
			send(n, 0)
		}
		polls := r.State().Total.Polls
		backlogs := map[queue.Name]bool{}
		for n := 14; n < 40; n++ {
			backlogs[send(n, 0).Queue] = true
		}
		advance(time.Second)
		if got := r.State().Total.Polls - polls; len(backlogs) != 4 || got != 0 {
			t.Errorf("got messages in %v and %d polls, want them in all four backlog queues, and no worker woken", backlogs, got)
		}
		late := send(99, time.Hour)
		if err := p.Cancel(b.Context(), late); err != nil || late.Queue.Account != "east" {
			t.Errorf("Cancel in %v: got %v, want nil and a backlog queue", late.Queue, err)
		}
		if err := p.Cancel(b.Context(), late); !errors.Is(err, queue.ErrLeaseLost) {
			t.Errorf("Cancel again: got %v, want that it is gone", err)
		}

		advance(time.Until(b.begin.Add(over)))
		ctx, stop := context.WithCancel(b.Context())
		home := make(chan error, 1)
		syphon := must(paired.NewSyphon(pairs, &paired.SyphonOptions{Seed: 1, OnHome: func(shard queue.Name, delay time.Duration) {
			if err := bus.Publish(ctx, shard, 0, time.Now().Add(delay)); err != nil {
				t.Error(err)
			}
		}}))
		go func() { home <- syphon.Run(ctx) }()
		advance(time.Minute)
		b.mu.Lock()
		for n := range 40 {
			if want := q.ShardsOf(fmt.Sprint(n))[0].Name(); b.handled[n] != 1 || b.from[n] != want {
				t.Errorf("job %d: got it %d times, from %v; want it once, from %v", n, b.handled[n], b.from[n], want)
			}
		}
		b.mu.Unlock()
		before := len(b.jobs())
		if sent := send(40, 0); sent.Queue.Account != "test" || before != 40 {
			t.Errorf("after the outage: got a message in %v after %d jobs, want it in a shard, after 40", sent.Queue, before)
		}
		advance(time.Second)
		if got := len(b.jobs()); got != 41 {
			t.Errorf("got %d jobs, want the last one as well, at once", got)
		}
		stop()
		if err := <-home; err != nil {
			t.Error(err)
		}
		r.mustFinish()
		for _, p := range pairs {
			p.Close()
		}
	})
}

// A guard recognizes a job that is sent twice if both messages are in one shard, and only then: its keys begin with the
// name of the queue.
func TestAJobThatIsSentTwiceIsRecognizedInOneShard(t *testing.T) {
	for place, want := range map[sharded.Strategy]int{sharded.ByKey: 1, sharded.RoundRobin: 2} {
		bubble(t, func(b *bundle) {
			all := b.shards(2)
			q, err := sharded.New(all, &sharded.Options{Seed: 1, Place: place})
			if err != nil {
				t.Fatal(err)
			}
			guard, err := dedupe.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			o := b.options()
			o.Listener.Duplicates = guard
			r := b.run(must(shards.New(all, b.handle, o)))
			for range 2 {
				if _, err := producer.New[job](q, nil).Send(b.Context(), job{7}, &producer.SendOptions{DedupeKey: "payment-7", Key: "payment-7"}); err != nil {
					t.Fatal(err)
				}
				advance(time.Minute)
			}
			if got, duplicates := b.handled[7], r.State().Total.Outcomes[listener.Duplicate]; got != want || duplicates != int64(2-want) {
				t.Errorf("%v: handled %d times, %d duplicates; want %d and %d", place, got, duplicates, want, 2-want)
			}
			r.mustFinish()
		})
	}
}

// event is what was published, or heard.
type event struct {
	Queue queue.Name
	Bytes int64
	Due   time.Time
}

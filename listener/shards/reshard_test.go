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

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/listener/shards"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/sharded"
)

// fleet is several processes that send and several that listen, and every job's way.
type fleet struct {
	t         *rapid.T
	ctx       context.Context
	engine    *localqueue.Engine
	faults    *faultqueue.Options // nil for none
	senders   []*sharded.Queue
	listeners []*shards.Listener[job]

	work      sync.WaitGroup // listeners
	sending   sync.WaitGroup
	changing  sync.WaitGroup          // changes of shards
	telling   map[int]*sync.WaitGroup // senders that have yet to remove the shard
	stopSends context.CancelFunc
	queues    map[int]queue.Queue

	mu       sync.Mutex
	next     int            // guarded by mu
	accepted map[int]bool   // guarded by mu
	handled  map[int]int    // successes by job; guarded by mu
	failed   []error        // guarded by mu
	removed  map[string]int // results of Remove; guarded by mu
}

// late is the most by which a process learns of a change after the others. With the time-out of a Send
// and the delay of a late request it is less than settle. The next change comes after known, when all have
// learned of this one.
const (
	late   = 20 * time.Second
	known  = late + time.Second
	settle = 2 * time.Minute
)

func (f *fleet) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = append(f.failed, err)
}

// shard returns the queue of a shard, as every process opens it.
func (f *fleet) shard(i int) queue.Queue {
	if q := f.queues[i]; q != nil {
		return q
	}
	q := queue.Queue(f.engine.Queue(name(i)))
	if err := q.Create(f.ctx, nil); err != nil {
		f.t.Fatal(err)
	}
	if f.faults != nil {
		q = must(faultqueue.New(q, f.faults))
	}
	f.queues[i] = q
	return q
}

// start starts the processes with two shards.
func (f *fleet) start(senders, listeners int) {
	two := []queue.Queue{f.shard(0), f.shard(1)}
	for i := range listeners {
		l := must(shards.New(two, f.handle, &shards.Options[job]{
			Slots: 16, Settle: settle, Listener: &listener.Options[job]{Logger: slog.New(slog.DiscardHandler), Seed: uint64(1 + i)},
		}))
		f.listeners = append(f.listeners, l)
		f.work.Go(func() {
			if err := l.Run(f.ctx); err != nil {
				f.fail(fmt.Errorf("Run: %w", err))
			}
		})
	}
	sends, stop := context.WithCancel(f.ctx)
	f.stopSends = stop
	for i := range senders {
		q, err := sharded.New(two, &sharded.Options{Seed: uint64(1 + i), Place: []sharded.Strategy{sharded.RoundRobin, sharded.ByKey}[i%2]})
		if err != nil {
			f.t.Fatal(err)
		}
		f.senders = append(f.senders, q)
		p := producer.New(q, &producer.Options[job]{Timeout: -1})
		for range 2 {
			f.sending.Go(func() { f.send(sends, p) })
		}
	}
}

// send sends a job now and then. A job that was begun is sent until it is accepted.
func (f *fleet) send(ctx context.Context, p *producer.Producer[job]) {
	for ctx.Err() == nil {
		f.mu.Lock()
		n := f.next
		f.next++
		f.mu.Unlock()
		for {
			_, err := p.Send(f.ctx, job{n}, &producer.SendOptions{JobID: fmt.Sprint("job-", n), Key: fmt.Sprint(n % 50)})
			if err == nil {
				break
			}
			f.fail(fmt.Errorf("Send: %w", err))
		}
		f.mu.Lock()
		f.accepted[n] = true
		f.mu.Unlock()
		time.Sleep(time.Duration(n*7919%4000) * time.Millisecond)
	}
}

// handle takes up to 300 ms, and one job in seven fails at first. Most of the time a shard is empty.
func (f *fleet) handle(_ context.Context, m *listener.Message[job]) error {
	time.Sleep(time.Duration(m.Body.N%31) * 10 * time.Millisecond)
	if m.Body.N%7 == 0 && m.Attempt == 1 {
		return listener.Retry(5*time.Second, errors.New("not yet"))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handled[m.Body.N]++
	return nil
}

// up adds a shard: to the listeners first, each process at its time, and then to the senders.
func (f *fleet) up(i int, lags []time.Duration) {
	q := f.shard(i)
	if removal := f.telling[i]; removal != nil {
		removal.Wait() // it has reached all senders
	}
	var listening sync.WaitGroup
	for n, l := range f.listeners {
		listening.Go(func() {
			time.Sleep(lags[n])
			if err := l.Add(q); err != nil {
				f.fail(err)
			}
		})
	}
	listening.Wait()
	for n, s := range f.senders {
		f.changing.Go(func() {
			time.Sleep(lags[2+n])
			if err := s.Add(q); err != nil {
				f.fail(err)
			}
		})
	}
	time.Sleep(known)
}

// down removes a shard: from the senders first, and from the listeners while some senders do not know it
// yet, which Settle allows for.
func (f *fleet) down(i int, lags []time.Duration) {
	removal := new(sync.WaitGroup)
	f.telling[i] = removal
	for n, s := range f.senders {
		removal.Go(func() {
			time.Sleep(lags[2+n])
			if err := s.Remove(f.ctx, name(i)); err != nil {
				f.fail(err)
			}
		})
	}
	for n, l := range f.listeners {
		f.changing.Go(func() {
			time.Sleep(lags[n])
			result := "removed"
			if err := l.Remove(f.ctx, name(i)); err != nil {
				result = err.Error()
			}
			f.mu.Lock()
			f.removed[result]++
			f.mu.Unlock()
		})
	}
	time.Sleep(known)
}

// depth returns the sum of all queues that there ever were, poison queues included.
func (f *fleet) depth() (sum int64) {
	for i := range f.queues {
		for _, q := range []queue.Queue{f.engine.Queue(name(i)), f.engine.Queue(name(i)).Sibling("-poison")} {
			p, err := q.Properties(f.ctx)
			if err != nil && !errors.Is(err, queue.ErrQueueMissing) {
				f.t.Fatal(err)
			}
			sum += p.Depth
		}
	}
	return sum
}

// S-02, S-05: shards come and go while several processes send and listen, and processes learn of it at
// different times. Every job that was accepted is handled, exactly once without faults; with them none
// is lost, and nothing is left in any queue, those of removed shards included.
func TestReshardingLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	suitetest.Checks(t, 30)
	synctest.Test(t, func(t *testing.T) { rapid.Check(noDeadline{t}, resharding) })
}

// noDeadline hides the deadline of the test, which is real time, from the fake clock.
type noDeadline struct{ rapid.TB }

func (noDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

func resharding(t *rapid.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	f := &fleet{
		t: t, ctx: ctx, engine: must(localqueue.New(&localqueue.Options{Seed: 1})), queues: map[int]queue.Queue{}, telling: map[int]*sync.WaitGroup{},
		accepted: map[int]bool{}, handled: map[int]int{}, removed: map[string]int{},
	}
	if rapid.Bool().Draw(t, "faults") {
		f.faults = &faultqueue.Options{Seed: rapid.Uint64().Draw(t, "seed"), Every: faultqueue.Rates{Throttled: 0.02, Unavailable: 0.02, LostRequest: 0.01, LostResponse: 0.01, Duplicate: 0.01, Late: 0.01}}
	}
	f.start(2, 2)
	in := []int{0, 1}                                                      // where messages are placed
	lag := rapid.SampledFrom([]time.Duration{0, late / 4, late / 2, late}) // of all four processes
	for range rapid.IntRange(1, 4).Draw(t, "changes") {
		lags := rapid.SliceOfN(lag, 4, 4).Draw(t, "lags")
		i := rapid.IntRange(0, 4).Draw(t, "shard")
		switch at := slices.Index(in, i); {
		case at < 0:
			f.up(i, lags)
			in = append(in, i)
		case len(in) > 1:
			f.down(i, lags)
			in = slices.Delete(in, at, at+1)
		}
		time.Sleep(time.Duration(rapid.IntRange(0, 150).Draw(t, "pause")) * time.Second)
	}
	f.stopSends()
	f.sending.Wait()
	f.waitForLate() // they may add messages
	for waited := 0; f.depth() > 0; waited++ {
		if waited == 60 {
			t.Fatalf("got depth %d an hour after the last send, want none", f.depth())
		}
		time.Sleep(time.Minute)
	}
	f.changing.Wait() // every removal ends
	stop()
	f.work.Wait()
	f.waitForLate()
	f.check(in)
}

// waitForLate waits until requests have arrived that their callers have given up.
func (f *fleet) waitForLate() {
	for _, q := range f.queues {
		if q, ok := q.(*faultqueue.Queue); ok {
			q.Wait()
		}
	}
}

// check compares what was accepted with what was handled.
func (f *fleet) check(in []int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, err := range f.failed {
		f.t.Error(err)
	}
	twice := 0
	for n := range f.next {
		switch {
		case f.accepted[n] != (f.handled[n] > 0):
			f.t.Errorf("job %d: got accepted %v, handled %d times", n, f.accepted[n], f.handled[n])
		case f.handled[n] > 1:
			twice++
		}
	}
	if twice > 0 && f.faults == nil {
		f.t.Errorf("got %d jobs handled more than once, want none without faults", twice)
	}
	if len(f.accepted) < 10 {
		f.t.Errorf("got %d jobs, want a load", len(f.accepted))
	}
	for _, l := range f.listeners {
		var names []string
		for _, one := range l.State().Shards {
			names = append(names, one.Shard.Queue)
		}
		var want []string
		for _, i := range slices.Sorted(slices.Values(in)) {
			want = append(want, name(i).Queue)
		}
		if !slices.Equal(names, want) {
			f.t.Errorf("got shards %v, want %v", names, want)
		}
	}
	f.t.Logf("%d jobs, %d of them more than once; removals %v", len(f.accepted), twice, f.removed)
}

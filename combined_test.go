package millrace_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/dispatcher/perkey"
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/listener/shards"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/limits"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/queue/paired"
	"github.com/millrace/millrace/queue/sharded"
	"github.com/millrace/millrace/wakeup"
)

// combined is a producer and a worker that use everything together: the parts of docs/combining.md.
type combined struct {
	t          *testing.T
	west, east *localqueue.Engine
	outage     faultqueue.Phase // of the west, for senders and receivers
	sent       *metered.Meter   // the requests of the senders, without those that a limit held back
	claims     *claimcheck.Claims
	bus        wakeup.Bus

	mu      sync.Mutex
	runs    map[int]int     // of each job; guarded by mu
	running map[string]bool // keys; guarded by mu
	atOnce  int             // handlers; guarded by mu
	most    int             // handlers at once; guarded by mu
}

// Parcel is a job. Every tenth one is too large for a message.
type Parcel struct {
	N   int
	Key string
	Pad string
}

const (
	combinedShards = 3
	combinedSlots  = 12
)

func newCombined(t *testing.T) *combined {
	c := &combined{t: t, west: must(localqueue.New(nil)), east: must(localqueue.New(nil)), sent: new(metered.Meter), runs: map[int]int{}, running: map[string]bool{}}
	var err error
	if c.claims, err = claimcheck.New(blob.Memory(), "bodies", nil); err != nil {
		t.Fatal(err)
	}
	return c
}

// shard returns a shard as a process sees it, from the inside out: the service, what counts its requests, a limit of the
// process, and its pair.
func (c *combined) shard(i int, all *limits.Process, m *metered.Meter) *paired.Queue {
	c.t.Helper()
	network := must(faultqueue.New(c.west.Queue(queue.Name{Account: "west", Queue: fmt.Sprintf("orders-%d", i)}), &faultqueue.Options{
		Seed: uint64(i), UsualLatency: faultqueue.Range{Min: 5 * time.Millisecond, Max: 20 * time.Millisecond}, Phases: []faultqueue.Phase{c.outage},
	}))
	primary := all.Wrap(m.Wrap(network))
	secondary := all.Wrap(m.Wrap(c.east.Queue(queue.Name{Account: "east", Queue: "orders"})))
	q := must(paired.New(primary, secondary, &paired.Options{Backlogs: 2, FailoverInterval: 2 * time.Second, ProbeInterval: 5 * time.Second, Logger: silent}))
	c.t.Cleanup(func() { _ = q.Close() })
	if err := q.Pair(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	return q
}

// limit returns a limit of a process.
func (c *combined) limit() *limits.Process {
	c.t.Helper()
	l, err := limits.NewProcess(&limits.ProcessOptions{Messages: 200})
	if err != nil {
		c.t.Fatal(err)
	}
	return l
}

// producer returns a producer that sends to all shards.
func (c *combined) producer() *producer.Producer[Parcel] {
	c.t.Helper()
	all := c.limit()
	var pairs []queue.Queue
	for i := range combinedShards {
		pairs = append(pairs, c.shard(i, all, c.sent))
	}
	orders, err := sharded.New(pairs, &sharded.Options{Place: sharded.ByKey})
	if err != nil {
		c.t.Fatal(err)
	}
	return producer.New(orders, &producer.Options[Parcel]{Claims: c.claims, Wakeups: &c.bus})
}

// worker returns a worker that listens to all shards, and to another queue with the same slots.
func (c *combined) worker(rate *limits.RateLimit) []millrace.Runner {
	c.t.Helper()
	all, shared := c.limit(), must(slots.NewShared(&slots.SharedOptions{Slots: combinedSlots}))
	var limitedShards []queue.Queue
	var pairs []*paired.Queue
	for i := range combinedShards {
		pair := c.shard(i, all, new(metered.Meter))
		pairs = append(pairs, pair)
		limitedShards = append(limitedShards, rate.Wrap(pair))
	}
	keys, err := perkey.New(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	orders := must(shards.New(limitedShards, perkey.Wrap(keys, c.handle), &shards.Options[Parcel]{
		Shared: shared, Listener: &listener.Options[Parcel]{Claims: c.claims, Wakeups: &c.bus, Logger: silent},
	}))
	letters := listener.New(c.west.Queue(queue.Name{Account: "west", Queue: "letters"}), func(context.Context, *listener.Message[string]) error {
		c.enter(1)
		defer c.enter(-1)
		time.Sleep(3 * time.Second)
		return nil
	}, &listener.Options[string]{Slots: shared.Member(&slots.MemberOptions{Name: "letters"}), Logger: silent})
	return []millrace.Runner{orders, letters, must(paired.NewSyphon(pairs, &paired.SyphonOptions{MaxPoll: time.Minute}))}
}

// enter counts handlers.
func (c *combined) enter(by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.atOnce += by
	c.most = max(c.most, c.atOnce)
}

func (c *combined) handle(_ context.Context, m *listener.Message[Parcel]) error {
	c.enter(1)
	defer c.enter(-1)
	c.mu.Lock()
	if c.running[m.Body.Key] {
		c.t.Errorf("two handlers of the key %s run at once", m.Body.Key)
	}
	c.running[m.Body.Key] = true
	c.runs[m.Body.N]++
	c.mu.Unlock()
	time.Sleep(50 * time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, m.Body.Key)
	return nil
}

func (c *combined) done() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.runs)
}

// Shards that are pairs, limits of a process and of all, a pool, one at a time for each key, bodies in blobs, wake-ups and
// meters work together through an outage: every job that was accepted is handled, none twice, because no response is
// lost, and all limits hold.
func TestWhatIsCombinedLosesAndDoublesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	synctest.Test(t, func(t *testing.T) {
		const jobs = 600
		c := newCombined(t)
		down := faultqueue.Rates{Unavailable: 1}
		c.outage = faultqueue.Phase{From: 40 * time.Second, For: time.Minute, Faults: map[faultqueue.Op]faultqueue.Rates{
			faultqueue.Enqueue: down, faultqueue.Dequeue: down, faultqueue.Properties: down, // a delete that fails makes a duplicate
		}}
		for i := range combinedShards {
			if err := c.west.Queue(queue.Name{Account: "west", Queue: fmt.Sprintf("orders-%d", i)}).Create(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		letters := c.west.Queue(queue.Name{Account: "west", Queue: "letters"})
		if err := letters.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		for range 300 { // they would take all slots
			if _, err := letters.Enqueue(t.Context(), `"dear"`, nil); err != nil {
				t.Fatal(err)
			}
		}
		limit := limits.Rate{Jobs: 500, Window: 30 * time.Second}
		source := c.west.Queue(queue.Name{Account: "west", Queue: "order-tokens"})
		if err := limit.Init(t.Context(), source); err != nil {
			t.Fatal(err)
		}
		rate, err := limit.Open(t.Context(), source)
		if err != nil {
			t.Fatal(err)
		}
		p, worker := c.producer(), c.worker(rate)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- millrace.Run(ctx, worker...) }()

		diverted := 0
		for n := range jobs {
			job := Parcel{N: n, Key: fmt.Sprintf("customer %d", n%17)}
			if n%10 == 0 {
				job.Pad = strings.Repeat("x", 70_000)
			}
			sent, err := p.Send(t.Context(), job, &producer.SendOptions{Key: job.Key})
			if err != nil {
				t.Errorf("job %d: %v", n, err)
			}
			if sent.Queue.Account == "east" {
				diverted++
			}
			time.Sleep(200 * time.Millisecond)
		}
		for begin := time.Now(); c.done() < jobs && time.Since(begin) < 30*time.Minute; {
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Minute) // for what would come twice
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if diverted < jobs/10 {
			t.Errorf("%d of %d jobs were diverted: this shows nothing", diverted, jobs)
		}
		if done := c.done(); done != jobs {
			t.Errorf("%d of %d jobs were handled", done, jobs)
		}
		for n, runs := range c.runs {
			if runs != 1 {
				t.Errorf("job %d was handled %d times", n, runs)
			}
		}
		if c.most != combinedSlots {
			t.Errorf("%d handlers ran at once, want all %d slots and no more", c.most, combinedSlots)
		}
		sends := c.sent.Counts().Operation(metered.Enqueue)
		if accepted := sends.Requests - sends.Unreached - sends.Failed; accepted != jobs {
			t.Errorf("the meter has %d accepted sends of %d, want %d: %+v", accepted, sends.Requests, jobs, sends)
		}
	})
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

package perkey_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"context"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/dispatcher/perkey"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/sharded"
)

// process starts a listener of a queue with keys of its own, as another process has.
func (b *bundle) process(q queue.Queue) (stop func()) {
	b.Helper()
	keys, err := perkey.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	return b.run(listener.New(q, perkey.Wrap(keys, b.handle), b.options))
}

// With shards by key and one reader for each, one handler at a time runs for each key in the whole fleet. With two
// readers of each shard that is not so, or the test would show nothing.
func TestOneReaderForEachShardIsOneAtATimeInTheFleet(t *testing.T) {
	for readers := 1; readers <= 2; readers++ {
		bubble(t, nil, func(b *bundle) {
			var shards []queue.Queue
			for i := range 4 {
				shards = append(shards, b.newQueue(fmt.Sprint("jobs-", i)))
			}
			const n = 300
			for from := range 2 { // producers
				q, err := sharded.New(shards, &sharded.Options{Place: sharded.ByKey})
				if err != nil {
					t.Fatal(err)
				}
				p := producer.New[job](q, nil)
				for i := from; i < n; i += 2 {
					o := &producer.SendOptions{Key: fmt.Sprint("key ", i%12)}
					if _, err := p.Send(b.Context(), job{i, time.Duration(i%5) * 700 * time.Millisecond}, o); err != nil {
						t.Fatal(err)
					}
				}
			}
			var stops []func()
			for range readers {
				for _, q := range shards {
					stops = append(stops, b.process(q))
				}
			}
			b.until(n, time.Hour)
			for _, stop := range stops {
				stop()
			}
			if readers == 1 {
				b.wantNoFaults()
			} else if len(b.faults) == 0 {
				t.Error("with two readers of each shard: got no two handlers of one key at once")
			}
		})
	}
}

// readShards runs a process that reads shards whose jobs in the queue of readings it gets.
func (b *bundle) readShards(readings queue.Queue, shards []queue.Queue) (stop func()) {
	b.Helper()
	keys, err := perkey.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	read := func(ctx context.Context, m *listener.Message[job]) error {
		l := listener.New(shards[m.Body.N], perkey.Wrap(keys, b.handle), b.options)
		return errors.Join(l.Run(ctx), listener.Snooze(0))
	}
	return b.run(listener.New(readings, read, &listener.Options[job]{
		Lease: listener.LeaseOptions{Visibility: listener.FixedVisibility(30 * time.Second), SettleTimeout: 30 * time.Second}, Grace: -1, Logger: b.options.Logger,
	}))
}

// When the process stops that has the leases of all shards, another takes over at once, and still one handler at
// a time runs for each key.
func TestAShardIsTakenOverWhenItsReaderStops(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		b.options.Grace = 10 * time.Second
		readings := b.newQueue("readings")
		var shards []queue.Queue
		for i := range 3 {
			shards = append(shards, b.newQueue(fmt.Sprint("jobs-", i)))
			if _, err := producer.New[job](readings, nil).Send(b.Context(), job{N: i}, nil); err != nil {
				t.Fatal(err)
			}
		}
		all, err := sharded.New(shards, &sharded.Options{Place: sharded.ByKey})
		if err != nil {
			t.Fatal(err)
		}
		const n = 200
		for i := range n {
			if _, err := producer.New[job](all, nil).Send(b.Context(), job{i, 3 * time.Second}, &producer.SendOptions{Key: fmt.Sprint(i % 10)}); err != nil {
				t.Fatal(err)
			}
		}
		stopFirst := b.readShards(readings, shards)
		advance(2 * time.Second)
		stopSecond := b.readShards(readings, shards)
		advance(20 * time.Second)
		before := b.count("")
		stopFirst()
		b.until(n, 10*time.Minute)
		stopSecond()
		b.wantNoFaults()
		if before < 40 || before > 100 {
			t.Errorf("got %d jobs done by the first process, want some and not all", before)
		}
	})
}

// world is a worker with jobs, and what goes wrong.
type world struct {
	Concurrency int
	Wait        time.Duration
	Jobs        []worldJob
	Faults      faultqueue.Rates
	Seed        uint64
}

type worldJob struct {
	Key   int // 0 for none
	Takes time.Duration
	Fails int // attempts that fail: every third by a panic
}

func drawWorld(r *rapid.T) world {
	w := world{
		Concurrency: rapid.IntRange(1, 20).Draw(r, "concurrency"),
		Wait:        rapid.SampledFrom([]time.Duration{-1, 0, time.Second, time.Minute}).Draw(r, "wait"),
		Seed:        rapid.Uint64Range(1, 1000).Draw(r, "seed"),
	}
	if rapid.Bool().Draw(r, "faults") {
		w.Faults = faultqueue.Rates{LostRequest: 0.05, LostResponse: 0.1, Throttled: 0.05}
	}
	takes := rapid.SampledFrom([]time.Duration{0, time.Millisecond, 300 * time.Millisecond, 2 * time.Second, 40 * time.Second})
	w.Jobs = rapid.SliceOfN(rapid.Custom(func(r *rapid.T) worldJob {
		return worldJob{rapid.IntRange(0, 3).Draw(r, "key"), takes.Draw(r, "takes"), rapid.IntRange(0, 6).Draw(r, "fails") / 4 * 2}
	}), 1, 40).Draw(r, "jobs")
	return w
}

// Whatever the jobs, the slots and the faults of the network: no two handlers of one key run at once, no job
// starves, every job is handled to success, and in the end nothing is held.
func TestEveryJobIsHandledAndNoTwoOfAKeyAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	rapid.Check(t, func(r *rapid.T) {
		w := drawWorld(r)
		var faults []string
		synctest.Test(t, func(t *testing.T) { faults = setup(t, &perkey.Options{Wait: w.Wait}).live(w) })
		if len(faults) > 0 {
			r.Fatal(strings.Join(faults, "\n"))
		}
	})
}

// live runs a worker until all jobs of a world are done, and returns what must not happen.
func (b *bundle) live(w world) []string {
	for i, one := range w.Jobs {
		key := ""
		if one.Key > 0 {
			key = fmt.Sprint(one.Key)
		}
		b.send(key, i, one.Takes)
	}
	done := map[int]bool{}
	h := func(ctx context.Context, m *listener.Message[job]) error {
		if one := w.Jobs[m.Body.N]; m.Attempt <= one.Fails {
			b.enter(m.Key)
			defer b.leave(m.Key)
			time.Sleep(one.Takes)
			if m.Attempt%2 == 0 {
				panic("no")
			}
			return errors.New("no")
		}
		if err := b.handle(ctx, m); err != nil {
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		done[m.Body.N] = true
		return nil
	}
	o := &listener.Options[job]{
		Concurrency: w.Concurrency, Seed: w.Seed, Logger: slog.New(slog.DiscardHandler),
		RetryDelay: func(int, error) time.Duration { return 3 * time.Second },
	}
	faulty := must(faultqueue.New(b.queue, &faultqueue.Options{Seed: w.Seed, Every: w.Faults}))
	stop := b.run(listener.New(faulty, b.limited(h), o))
	all := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(done) == len(w.Jobs)
	}
	for hours := 0; !all() && hours < 48; hours++ {
		advance(time.Hour)
	}
	stop()
	faulty.Wait()
	if !all() {
		b.faults = append(b.faults, fmt.Sprintf("%d of %d jobs are done", len(done), len(w.Jobs)))
	}
	if s := b.keys.State(); s.Held+s.Waiting > 0 {
		b.faults = append(b.faults, fmt.Sprintf("in the end: %+v", s))
	}
	return b.faults
}

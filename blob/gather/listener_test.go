package gather_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/gather"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
)

// item is the message of both hops.
type item struct {
	Batch string
	Part  int
	Parts int
}

// fleet is workers that put parts and controllers that sum them up, on queues and a store that fail.
type fleet struct {
	*testing.T
	seed   uint64
	engine *localqueue.Engine
	store  blob.Store

	mu      sync.Mutex
	dice    *rand.Rand
	results map[string]string // by batch, as Once returned them; guarded by mu
	firsts  map[string]int    // by batch; guarded by mu
}

func (f *fleet) name(q string) queue.Name { return queue.Name{Account: "test", Queue: q} }

// network is a queue as one process reaches it.
func (f *fleet) network(q string, process uint64) queue.Queue {
	rates := faultqueue.Rates{Throttled: 0.05, LostRequest: 0.05, LostResponse: 0.05, Duplicate: 0.05, Late: 0.05, Slow: 0.02}
	return must(faultqueue.New(f.engine.Queue(f.name(q)), &faultqueue.Options{Seed: f.seed<<8 + process, Every: rates}))
}

// fails reports whether a call of the store fails.
func (f *fleet) fails() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dice.Float64() < 0.05 {
		return blob.ErrUnavailable
	}
	return nil
}

// reach is the store as a process reaches it: calls fail, and some have taken effect.
func (f *fleet) reach() *countingStore {
	s := &countingStore{Store: &unansweredNowAndThen{f.store, f.fails}, calls: map[string]int{}}
	s.before = func(context.Context, string, blob.Ref) error { return f.fails() }
	return s
}

// unansweredNowAndThen is a store whose creates and deletes may take effect without an answer.
type unansweredNowAndThen struct {
	blob.Store
	fails func() error
}

func (s *unansweredNowAndThen) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	if err := s.Store.Create(ctx, ref, r, o); err != nil {
		return err
	}
	return s.fails()
}

func (s *unansweredNowAndThen) Delete(ctx context.Context, ref blob.Ref) error {
	if err := s.Store.Delete(ctx, ref); err != nil {
		return err
	}
	return s.fails()
}

// process returns a process that works until its listener is stopped: a worker or a controller.
func (f *fleet) process(number uint64) *listener.Listener[item] {
	g := process(f.T, f.reach(), nil)
	o := &listener.Options[item]{
		Seed: f.seed<<8 + number + 1, Logger: slog.New(slog.DiscardHandler), Fetch: listener.FetchOptions{Idle: listener.Idle{Max: 10 * time.Second}},
		RetryDelay: func(int, error) time.Duration { return time.Second },
		Poison:     listener.PoisonPolicy{MaxAttempts: 100, MaxLost: 100},
	}
	if number%2 == 0 {
		results := producer.New(f.network("results", number), &producer.Options[item]{Create: true})
		return listener.New(f.network("work", number), func(ctx context.Context, m *listener.Message[item]) error {
			i := m.Body
			if err := g.Put(ctx, i.Batch, i.Part, strings.NewReader(strconv.Itoa(i.Part+1))); err != nil {
				return err
			}
			_, err := results.Send(ctx, i, nil)
			return err
		}, o)
	}
	return listener.New(f.network("results", number), func(ctx context.Context, m *listener.Message[item]) error {
		i := m.Body
		done, err := g.Complete(ctx, i.Batch, i.Parts)
		if err != nil || !done {
			return err
		}
		end, err := g.Once(ctx, i.Batch, func(ctx context.Context) ([]byte, error) { return sum(ctx, g, i, f.seed, number) })
		if err != nil {
			return err
		}
		f.ended(i.Batch, end)
		return g.Sweep(ctx, i.Batch)
	}, o)
}

// sum sums the parts up, and says who did it.
func sum(ctx context.Context, g *gather.Gather, i item, seed, number uint64) ([]byte, error) {
	sum := 0
	for part, err := range g.Parts(ctx, i.Batch, i.Parts) {
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(part)
		if err != nil {
			return nil, err
		}
		n, err := strconv.Atoi(string(text))
		if err != nil {
			return nil, err
		}
		sum += n
	}
	return fmt.Appendf(nil, "%d by process %d of seed %d", sum, number, seed), nil
}

func (f *fleet) ended(batch string, end gather.End) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if before := f.results[batch]; before != "" && before != string(end.Result) {
		f.Errorf("seed %d: batch %s ended as %q and as %q", f.seed, batch, before, end.Result)
	}
	f.results[batch] = string(end.Result)
	if end.First {
		f.firsts[batch]++
	}
}

// run runs processes for a while. Each is stopped and started again in the middle.
func (f *fleet) run(ctx context.Context, processes uint64) {
	var all sync.WaitGroup
	for number := range processes {
		all.Go(func() {
			for range 2 {
				l := f.process(number)
				life, stop := context.WithTimeout(ctx, 5*time.Second)
				if number%3 == 0 {
					context.AfterFunc(life, l.Halt) // without a drain
				}
				if err := l.Run(life); err != nil {
					f.Errorf("seed %d, process %d: %v", f.seed, number, err)
				}
				stop()
			}
			l := f.process(number)
			life, stop := context.WithTimeout(ctx, 2*time.Hour)
			defer stop()
			if err := l.Run(life); err != nil {
				f.Errorf("seed %d, process %d: %v", f.seed, number, err)
			}
		})
	}
	all.Wait()
}

// Workers and controllers of several processes, on a bad network: every batch is summed up from all its parts, ends as one
// process summed it up, and leaves its end alone.
func TestABadNetworkLosesNoPart(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 1
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		synctest.Test(t, func(t *testing.T) {
			f := &fleet{T: t, seed: seed, engine: must(localqueue.New(nil)), store: blob.Memory(), dice: rand.New(rand.NewPCG(seed, 1)), results: map[string]string{}, firsts: map[string]int{}}
			work := producer.New(f.engine.Queue(f.name("work")), &producer.Options[item]{Create: true})
			batches := map[string]int{"one": 1, "few": 7, "many": 40}
			for batch, parts := range batches {
				for part := range parts {
					if _, err := work.Send(t.Context(), item{batch, part, parts}, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			f.run(t.Context(), 4)
			time.Sleep(time.Minute) // late requests arrive
			f.run(t.Context(), 4)   // and what they have made is handled
			time.Sleep(time.Minute) // late requests of the last messages
			f.audit(batches)
		})
	}
}

func (f *fleet) audit(batches map[string]int) {
	for batch, parts := range batches {
		if want := fmt.Sprint(parts*(parts+1)/2, " by"); !strings.HasPrefix(f.results[batch], want) || f.firsts[batch] > 1 {
			f.Errorf("seed %d, batch %s: got the end %q, %d times first; want %q…, once", f.seed, batch, f.results[batch], f.firsts[batch], want)
		}
	}
	b := &bundle{T: f.T, store: &countingStore{Store: f.store}}
	b.wantLeft("few/end many/end one/end")
	for _, q := range []string{"work", "results", "work" + poison.Suffix, "results" + poison.Suffix} {
		if p, err := f.engine.Queue(f.name(q)).Properties(context.Background()); err == nil && p.Depth > 0 {
			f.Errorf("seed %d: got %d messages left in %s, want none", f.seed, p.Depth, q)
		}
	}
}

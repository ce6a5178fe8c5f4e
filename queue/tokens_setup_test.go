package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/limits"
	"github.com/millrace/millrace/queue/localqueue"
)

// faulty are the faults of a bad network and a busy service.
var faulty = faultqueue.Rates{
	Throttled: 0.04, Unavailable: 0.03, LostRequest: 0.03, LostResponse: 0.05, Duplicate: 0.02, Slow: 0.01, Late: 0.03,
}

// bundle is an account with a queue of tokens and a queue of jobs.
type bundle struct {
	*testing.T
	engine       *localqueue.Engine
	tokens, jobs queue.Manager
	begin        time.Time
}

func tokensSetup(t *testing.T) *bundle {
	e := must(localqueue.New(nil))
	b := &bundle{T: t, engine: e, begin: time.Now()}
	b.tokens = e.Queue(queue.Name{Account: "acme", Queue: "tokens"})
	b.jobs = e.Queue(queue.Name{Account: "acme", Queue: "jobs"})
	if err := b.jobs.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bundle) put(n int) {
	for i := range n {
		if _, err := b.jobs.Enqueue(b.Context(), fmt.Sprint(i), nil); err != nil {
			b.Fatal(err)
		}
	}
}

// worthy returns the indices of the tokens that count, sorted. It takes them.
func (b *bundle) worthy() (indices []string) {
	for {
		batch, err := b.tokens.Dequeue(b.Context(), queue.MaxBatch, time.Hour)
		if err != nil {
			b.Fatal(err)
		}
		if len(batch) == 0 {
			slices.Sort(indices)
			return indices
		}
		for _, m := range batch {
			if _, index, ok := strings.Cut(m.Text, "index="); ok {
				indices = append(indices, index)
			}
		}
	}
}

// There are exactly as many tokens as the limit has, each once, whatever becomes of the requests of the set-up and
// however many processes set up at once.
func TestTheSetUpMakesEachTokenOnce(t *testing.T) {
	seeds := 200
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			b := tokensSetup(t)
			r := limits.Rate{Jobs: 60, Window: time.Minute, PerToken: 1}
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			var all sync.WaitGroup
			for i := range 3 {
				q := must(faultqueue.New(b.tokens, &faultqueue.Options{Seed: uint64(seed*10 + i), Every: faulty}))
				all.Go(func() {
					if err := r.Init(ctx, q); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
					if _, err := r.Open(ctx, q); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
					q.Wait() // for what arrives late
				})
			}
			all.Wait()
			time.Sleep(time.Minute)
			got := b.worthy()
			if len(got) != 60 || len(slices.Compact(slices.Clone(got))) != 60 {
				t.Errorf("seed %d: got %d tokens: %v", seed, len(got), got)
			}
		})
	}
}

// A set-up that was interrupted leaves nothing that could be used, and says what to do.
func TestAnInterruptedSetUpIsOfNoUse(t *testing.T) {
	for seed := range 50 {
		synctest.Test(t, func(t *testing.T) {
			b := tokensSetup(t)
			r := limits.Rate{Jobs: 60, Window: time.Minute, PerToken: 1}
			dying := must(faultqueue.New(b.tokens, &faultqueue.Options{Seed: uint64(seed), DieAfter: 100}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := r.Init(ctx, dying); err == nil {
				t.Fatalf("seed %d: the set-up has survived", seed)
			}
			if _, err := r.Open(t.Context(), b.tokens); err == nil || !strings.Contains(err.Error(), "Init") {
				t.Fatalf("seed %d: got error %v, want one that names Init", seed, err)
			}
			again, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			if err := r.Init(again, b.tokens); err == nil {
				if n := len(b.worthy()); n != 60 { // it had not even begun
					t.Errorf("seed %d: got %d tokens", seed, n)
				}
				return
			}
			if err := b.tokens.Drop(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if err := r.Init(t.Context(), b.tokens); err != nil {
				t.Errorf("seed %d: after the drop: %v", seed, err)
			}
		})
	}
}

// A limit that differs from that of the queue, or a queue of something else, is refused.
func TestAnotherLimitIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		r := limits.Rate{Jobs: 100, Window: time.Minute, PerToken: 2}
		if _, err := r.Open(t.Context(), b.tokens); err == nil || !strings.Contains(err.Error(), "call Init once") {
			t.Errorf("before Init: got error %v", err)
		}
		for range 2 {
			if err := r.Init(t.Context(), b.tokens); err != nil {
				t.Fatal(err)
			}
		}
		other := limits.Rate{Jobs: 200, Window: time.Minute, PerToken: 2}
		for what, err := range map[string]error{
			"Init": other.Init(t.Context(), b.tokens), "Open": errorOf(other.Open(t.Context(), b.tokens)),
		} {
			if err == nil || !strings.Contains(err.Error(), "100 jobs in 1m0s") || !strings.Contains(err.Error(), "200 jobs in 1m0s") {
				t.Errorf("%s with another limit: got error %v, want one that names both", what, err)
			}
		}
		if err := b.jobs.SetMetadata(t.Context(), map[string]string{"a": "b"}); err != nil {
			t.Fatal(err)
		}
		if err := r.Init(t.Context(), b.jobs); err == nil || !strings.Contains(err.Error(), "not a queue of tokens") {
			t.Errorf("Init of a queue of jobs: got error %v", err)
		}
	})
}

func errorOf[T any](_ T, err error) error { return err }

func TestARateThatMakesNoSenseIsRefused(t *testing.T) {
	for want, r := range map[string]limits.Rate{
		"Rate.Jobs is 0":                {Window: time.Minute},
		"Rate.Window is 0s":             {Jobs: 100},
		"say 300 jobs in 30s":           {Jobs: 10, Window: time.Second},
		"it must be 30s to 72h0m0s":     {Jobs: 10, Window: 100 * time.Hour},
		"Rate.PerToken is -1":           {Jobs: 100, Window: time.Minute, PerToken: -1},
		"it must be at most 2, so that": {Jobs: 100, Window: time.Minute, PerToken: 3},
		"raise Rate.PerToken":           {Jobs: 1e7, Window: time.Minute, PerToken: 1},
	} {
		if _, err := r.Open(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got error %v, want one with %q", r, err, want)
		}
	}
}

// What Init has set up can be used immediately, even if responses of the set-up were lost. When tokens came up only
// 10 s later, no job ran for that long.
func TestANewLimitStartsImmediately(t *testing.T) {
	for _, faults := range []faultqueue.Rates{{}, {LostResponse: 0.05}} {
		synctest.Test(t, func(t *testing.T) {
			b := tokensSetup(t)
			b.put(200)
			f := must(faultqueue.New(b.tokens, &faultqueue.Options{Seed: 1, Every: faults}))
			r := limits.Rate{Jobs: 100, Window: time.Hour, PerToken: 1, Seed: 1}
			if err := r.Init(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			l, err := r.Open(t.Context(), b.tokens)
			if err != nil {
				t.Fatal(err)
			}
			q, got, begin := l.Wrap(b.jobs), 0, time.Now()
			for ; time.Since(begin) < 5*time.Second; time.Sleep(10 * time.Millisecond) {
				batch, err := q.Dequeue(t.Context(), 32, time.Hour)
				if err != nil && !errors.Is(err, queue.ErrLimited) {
					t.Fatal(err)
				}
				got += len(batch)
			}
			if got < 90 { // an update whose response is lost may leave its token hidden
				t.Errorf("in the first 5 s after Init %d jobs ran, want almost all 100; faults %+v", got, faults)
			}
		})
	}
}

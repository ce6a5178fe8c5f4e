package paired

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

// A kill loses nothing, and doubles at most what was being copied.
func TestAKillOfTheSyphonLosesNothing(t *testing.T) {
	const parallel = 8
	doubles := 0
	seeds := uint64(200)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		bubble(t, func(t *testing.T) {
			r := newRegions(t, 4)
			r.divert(t, 300)
			// One process has one death: home and backlogs die together.
			die := make(chan struct{})
			var once sync.Once
			home := must(faultqueue.New(r.home, &faultqueue.Options{Seed: seed, DieAfter: 400, UsualLatency: faultqueue.Range{Min: time.Millisecond, Max: 20 * time.Millisecond}}))
			var wrapped []queue.Queue
			var mortal []*faultqueue.Queue
			for _, q := range r.backlogs {
				f := must(faultqueue.New(q, &faultqueue.Options{Seed: seed, UsualLatency: faultqueue.Range{Min: time.Millisecond, Max: 20 * time.Millisecond}}))
				mortal, wrapped = append(mortal, f), append(wrapped, f)
			}
			first := must(newSyphon([]queue.Queue{home}, wrapped, &SyphonOptions{Parallel: parallel, Seed: 1}))
			ended := make(chan error, 1)
			go func() { ended <- first.Run(context.Background()) }()
			go func() {
				select {
				case <-home.Died():
				case <-time.After(time.Minute): // it had fewer calls than that
				}
				for _, f := range mortal {
					f.Kill()
				}
				first.Halt()
				once.Do(func() { close(die) })
			}()
			<-die
			<-ended
			start(t, r.home, r.backlogs, nil)
			time.Sleep(30 * time.Minute)
			got := texts(t, r.home)
			twice := 0
			for text, n := range got {
				if n > 1 {
					twice++
				}
				if n > 2 {
					t.Errorf("seed %d: %s came home %d times", seed, text, n)
				}
			}
			if len(got) != 300 || twice > parallel || depths(t, r.backlogs...) != 0 {
				t.Errorf("seed %d: got %d jobs, %d of them twice, and %d left; want 300, at most %d and none", seed, len(got), twice, depths(t, r.backlogs...), parallel)
			}
			doubles += twice
		})
	}
	if doubles == 0 {
		t.Error("no kill came between a copy and its delete: the test shows nothing")
	}
}

// Whatever goes wrong, nothing is lost, and what is doubled was in doubt.
func TestFaultsLoseNothing(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 4
	}
	for seed := range seeds {
		bubble(t, func(t *testing.T) {
			r := newRegions(t, 3)
			r.divert(t, 200)
			options := &faultqueue.Options{
				Seed:  seed,
				Every: faultqueue.Rates{Throttled: 0.03, Unavailable: 0.05, LostRequest: 0.05, LostResponse: 0.05, Slow: 0.02},
				Phases: []faultqueue.Phase{{From: 20 * time.Minute, For: 1 << 60, Faults: map[faultqueue.Op]faultqueue.Rates{
					faultqueue.Enqueue: {}, faultqueue.Dequeue: {}, faultqueue.Delete: {}, faultqueue.Update: {},
				}}},
			}
			home := must(faultqueue.New(r.home, options))
			var wrapped []queue.Queue
			for _, q := range r.backlogs {
				wrapped = append(wrapped, must(faultqueue.New(q, options)))
			}
			one := start(t, home, wrapped, &SyphonOptions{Seed: seed*2 + 1})
			two := start(t, home, wrapped, &SyphonOptions{Seed: seed*2 + 2})
			time.Sleep(2 * time.Hour)
			got := texts(t, r.home)
			doubled := int64(0)
			for _, n := range got {
				doubled += int64(n - 1)
			}
			doubtful := one.State().Doubtful + two.State().Doubtful
			if len(got) != 200 || doubled > doubtful || depths(t, r.backlogs...) != 0 {
				t.Errorf("seed %d: got %d jobs, %d doubled, %d in doubt and %d left; want 200, no more than in doubt, and none left", seed, len(got), doubled, doubtful, depths(t, r.backlogs...))
			}
		})
	}
}

// The copy that tries a primary queue after its rest may tell nothing of it: a limit holds it back, or the queue
// refuses that message. The next one is tried then.
func TestATryThatTellsNothingIsFollowedByAnother(t *testing.T) {
	for name, err := range map[string]error{
		"held back by a limit": &queue.Error{Kind: queue.ErrLimited, RetryAfter: time.Second},
		"refused as invalid":   fault(queue.ErrInvalid, 400),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRegions(t, 2)
				r.divert(t, 20)
				down := outage{}
				down.begin(fault(queue.ErrUnavailable, 503))
				var saysNothing atomic.Bool
				home := &scripted{Queue: r.home, onEnqueue: func(context.Context, string) error {
					if err := down.answer(); err != nil {
						return err
					}
					if saysNothing.CompareAndSwap(true, false) {
						return err
					}
					return nil
				}}
				s := start(t, home, r.backlogs, &SyphonOptions{Parallel: 1})
				time.Sleep(5 * time.Minute)
				if s.homes.failing().IsZero() {
					t.Fatal("the primary queue does not rest: the test shows nothing")
				}
				saysNothing.Store(true)
				down.end()
				time.Sleep(2 * time.Hour)
				if saysNothing.Load() {
					t.Error("no copy was tried after the outage")
				}
				sameTexts(t, texts(t, r.home), jobs(20))
			})
		})
	}
}

// What a syphon costs is what its queues were asked.
func TestASyphonCountsEveryRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 2)
		r.divert(t, 100)
		backlogs, wrapped := scriptAll(r.backlogs)
		home := &scripted{Queue: r.home}
		home.onEnqueue = func(context.Context, string) error {
			if home.enqueues.Load()%5 == 0 {
				return fault(queue.ErrUnavailable, 503)
			}
			return nil
		}
		backlogs[0].onUpdate = func() error { return fault(queue.ErrThrottled, 503) }
		s := start(t, home, wrapped, nil)
		time.Sleep(time.Hour)
		sameTexts(t, texts(t, r.home), jobs(100))
		want := SyphonRequests{Copies: home.enqueues.Load()}
		for _, q := range backlogs {
			want.Polls += q.dequeues.Load()
			want.Deletes += q.deletes.Load()
			want.GiveBacks += q.updates.Load()
		}
		got := s.State().Requests
		want.EmptyPolls = got.EmptyPolls
		if got != want || want.GiveBacks == 0 {
			t.Errorf("got %+v, want %+v, some of each", got, want)
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

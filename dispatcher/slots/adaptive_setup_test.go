package slots

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
)

// dependency is what the handlers of a test call. Its fields are set before the first call.
type dependency struct {
	capacity func() int                     // calls at once that it bears
	refuses  bool                           // it refuses calls beyond
	slows    bool                           // or takes longer for all, in proportion
	takes    func(*rand.Rand) time.Duration // a call that is alone
	holds    func(*rand.Rand) (bytes int64) // that a call has in use at its end; nil for none

	mu       sync.Mutex
	random   *rand.Rand    // guarded by mu
	inFlight int           // guarded by mu
	most     int           // at once; guarded by mu
	answered int           // guarded by mu
	refused  int           // guarded by mu
	spent    time.Duration // by all answered calls; guarded by mu
	used     int64         // bytes; guarded by mu
	peak     int64         // guarded by mu
}

var errRefused = Exhausted(errors.New("429 too many requests"))

// call is one call of the dependency.
func (d *dependency) call(ctx context.Context) error {
	takes, bytes, ok := d.begin()
	defer d.end()
	if !ok {
		time.Sleep(100 * time.Millisecond)
		return errRefused
	}
	began := time.Now()
	const steps = 4 // what a call holds grows while it runs
	for n := range steps {
		part := bytes/steps + bytes%steps*int64(n/(steps-1))
		d.use(part)
		defer d.use(-part)
		if err := sleep(ctx, takes/steps); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answered++
	d.spent += time.Since(began)
	return nil
}

func (d *dependency) begin() (takes time.Duration, bytes int64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inFlight++
	d.most = max(d.most, d.inFlight)
	takes = d.takes(d.random)
	if d.holds != nil {
		bytes = d.holds(d.random)
	}
	over := d.inFlight > d.capacity()
	if over && d.slows {
		takes = time.Duration(float64(takes) * float64(d.inFlight) / float64(d.capacity()))
	}
	if over && d.refuses {
		d.refused++
		return 0, 0, false
	}
	return takes, bytes, true
}

func (d *dependency) end() {
	d.mu.Lock()
	d.inFlight--
	d.mu.Unlock()
}

func (d *dependency) use(bytes int64) {
	d.mu.Lock()
	d.used += bytes
	d.peak = max(d.peak, d.used)
	d.mu.Unlock()
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// around returns durations around d.
func around(d time.Duration) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration { return time.Duration(float64(d) * (0.7 + 0.6*r.Float64())) }
}

// work runs handlers for ever more jobs until the context ends, as a dispatcher does, and waits for them. Handler gets the
// number of the job.
func work(ctx context.Context, t *testing.T, s dispatcher.Slots, batch int, intercept dispatcher.Interceptor, handler func(ctx context.Context, job int) error) {
	freed := make(chan struct{}, 1)
	if err := s.Join(freed); err != nil {
		t.Error(err)
		return
	}
	defer s.Leave()
	var handlers sync.WaitGroup
	defer handlers.Wait()
	running := 0
	var mu sync.Mutex
	for number := 0; ctx.Err() == nil; {
		mu.Lock()
		n, _ := s.Take(dispatcher.SlotRequest{Least: 1, Most: batch, Likely: batch})
		running += n
		mu.Unlock()
		if n == 0 {
			select {
			case <-freed:
			case <-ctx.Done():
			}
			continue
		}
		for range n {
			number++
			job := number
			d := dispatcher.Delivery{Queue: queue.Name{Queue: "jobs"}, ID: queue.ID(strconv.Itoa(job)), DequeueCount: 1, Attempt: 1, MaxAttempts: 5}
			handlers.Go(func() {
				defer func() {
					_ = recover()
					s.Free(1)
				}()
				_ = intercept(ctx, d, func(ctx context.Context) error { return handler(ctx, job) })
			})
		}
		time.Sleep(5 * time.Millisecond) // the dequeue
	}
}

// outcome is what became of a run.
type outcome struct {
	answered int           // calls that were answered
	refused  int           // calls that were refused
	mean     time.Duration // of the answered ones
	most     int           // at once
	peak     int64         // bytes in use
	last     AdaptiveState
}

func (o outcome) String() string {
	return fmt.Sprintf("%d answered in %v on average, %d refused (%.1f %%), %d at once at most, peak %s, at the end %v",
		o.answered, o.mean.Round(time.Millisecond), o.refused, o.refusedPart()*100, o.most, inMiB(o.peak), o.last)
}

// refusedPart returns the part of the calls that was refused.
func (o outcome) refusedPart() float64 {
	return float64(o.refused) / float64(max(o.refused+o.answered, 1))
}

// run runs handlers that call the dependency for a while: bounded by a limit, or, if that has no options, by as many slots.
func run(t *testing.T, seed uint64, lasts time.Duration, fixed int, o func(*dependency) *AdaptiveOptions, set func(d *dependency)) (got outcome) {
	synctest.Test(t, func(t *testing.T) {
		d := &dependency{random: rand.New(rand.NewPCG(seed, 0))}
		set(d)
		ctx, cancel := context.WithTimeout(t.Context(), lasts)
		defer cancel()
		call := func(ctx context.Context, _ int) error { return d.call(ctx) }
		if o == nil {
			p := must(NewShared(&SharedOptions{Slots: fixed}))
			plain := func(ctx context.Context, _ dispatcher.Delivery, next func(context.Context) error) error {
				return next(ctx)
			}
			work(ctx, t, p.Member(nil), 8, plain, call)
		} else {
			l := must(NewAdaptive(o(d)))
			go func() { // before the end ends handlers
				_ = sleep(ctx, lasts-time.Millisecond)
				d.mu.Lock()
				defer d.mu.Unlock()
				got.last = l.State()
			}()
			work(ctx, t, l.Slots(nil), 8, l.Intercept, call)
			if st := l.State(); st.Running != 0 || st.Held != 0 {
				t.Errorf("at the end: got %d running and %d slots held, want none", st.Running, st.Held)
			}
		}
		got.answered, got.refused, got.most, got.peak = d.answered, d.refused, d.most, d.peak
		got.mean = d.spent / time.Duration(max(d.answered, 1))
	})
	return got
}

package listener

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// near reports whether the figure is known and within a share of what is wanted.
func near(got scaling.Optional[float64], want, share float64) bool {
	v, known := got.Get()
	return known && math.Abs(v-want) <= share*want
}

func describe[T any](o scaling.Optional[T]) string {
	v, known := o.Get()
	if !known {
		return "unknown"
	}
	return fmt.Sprint(v)
}

// rates are unknown at first, then exact means of the last 30 s, and known zeros when nothing comes any more.
func TestRatesAreOfTheLastThirtySeconds(t *testing.T) {
	if testing.Short() {
		t.Skip("plays minutes at full rate")
	}
	bubble(t, func(b *bundle) {
		o := options()
		o.Fetch.Idle = Idle{Min: 100 * time.Millisecond, Max: 100 * time.Millisecond}
		l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(200 * time.Millisecond); return nil }, o)
		if st := l.State(); st.Intake.IsKnown() || st.Handling.IsKnown() {
			t.Errorf("before Run: got intake %s and handling %s, want them unknown", describe(st.Intake), describe(st.Handling))
		}
		b.run(l)
		advance(500 * time.Millisecond)
		if st := l.State(); st.Intake.IsKnown() || st.Service.IsKnown() || st.Handling.IsKnown() || st.Arrival.IsKnown() {
			t.Errorf("after half a second: got %+v, want the rates unknown", st)
		}
		for range 90 { // 4 a second
			for range 4 {
				b.put(1)
				advance(250 * time.Millisecond)
			}
		}
		st := l.State()
		if !near(st.Intake, 4, 0.04) || !near(st.Service, 4, 0.04) || st.Handling != scaling.Known(200*time.Millisecond) {
			t.Errorf("got intake %s, service %s, handling %s; want 4, 4 and 200ms", describe(st.Intake), describe(st.Service), describe(st.Handling))
		}
		advance(10 * time.Second) // a third of the window is empty now
		if st := l.State(); !near(st.Intake, 4*20.0/30, 0.06) {
			t.Errorf("10 s later: got intake %s, want 2.7", describe(st.Intake))
		}
		advance(31 * time.Second)
		for range 2 { // also when it has been quiet for long
			if st := l.State(); st.Intake != scaling.Known(0.0) || st.Service != scaling.Known(0.0) || st.Handling != scaling.Known(200*time.Millisecond) {
				t.Errorf("idle: got intake %s, service %s, handling %s; want 0, 0 and still 200ms", describe(st.Intake), describe(st.Service), describe(st.Handling))
			}
			advance(time.Hour)
		}
		b.put(30) // in the last moment of a window that was empty
		advance(900 * time.Millisecond)
		if st := l.State(); !near(st.Intake, 1, 0.04) || !near(st.Service, 1, 0.04) {
			t.Errorf("30 messages after an hour: got intake %s, service %s; want 1 a second", describe(st.Intake), describe(st.Service))
		}
		b.mustFinish()
		last := l.State()
		advance(time.Hour)
		if st := l.State(); st.Intake != last.Intake || !near(st.Intake, 1, 0.04) {
			t.Errorf("stopped: got intake %s, want the last one, %s", describe(st.Intake), describe(last.Intake))
		}
	})
}

// What is not taken off the queue is no service: retries, snoozes and what is given back; discarded and poison are.
func TestServiceIsWhatIsTakenOffTheQueue(t *testing.T) {
	for _, c := range []struct {
		name   string
		result error
		ended  float64
	}{
		{"success", nil, 10},
		{"discarded", Discard(nil), 10},
		{"poison", Poison(errors.New("bad")), 10},
		{"retried", Retry(time.Hour, errors.New("later")), 0},
		{"snoozed", Snooze(time.Hour), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				if err := b.queue.Sibling("-poison").Create(b.Context(), nil); err != nil {
					t.Fatal(err)
				}
				b.put(10)
				l := New(b.queue, func(context.Context, *Message[job]) error { return c.result }, options())
				b.run(l)
				advance(10 * time.Second)
				st := l.State()
				if !near(st.Intake, 1, 1e-9) || !near(st.Service, c.ended/10, 1e-9) {
					t.Errorf("got intake %s and service %s, want 1 and %v", describe(st.Intake), describe(st.Service), c.ended/10)
				}
				if want := 10 - int64(c.ended); st.Delayed != want {
					t.Errorf("got %d delayed, want %d", st.Delayed, want)
				}
				if c.ended == 0 {
					advance(time.Hour + 4*time.Minute)
					if st := l.State(); st.Delayed > 10 || st.Received < 20 {
						t.Errorf("when they are due: got %d delayed of %d received", st.Delayed, st.Received)
					}
				}
				b.mustFinish()
			})
		})
	}
}

// A handler that has not returned says nothing of how long handlers take.
func TestHandlingIsUnknownUntilAHandlerReturns(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(time.Hour); return nil }, options())
		b.run(l)
		advance(50 * time.Minute)
		if st := l.State(); st.Handling.IsKnown() || st.Service != scaling.Known(0.0) || st.Running != 1 || st.Slots != 64 {
			t.Errorf("got handling %s, service %s, %d running in %d slots; want unknown, 0, 1 in 64", describe(st.Handling), describe(st.Service), st.Running, st.Slots)
		}
		advance(10*time.Minute + time.Millisecond)
		// The window was not quiet while it ran, so its end is in it.
		if st := l.State(); st.Handling != scaling.Known(time.Hour) || !near(st.Service, 1.0/30, 0.04) {
			t.Errorf("got handling %s and service %s, want 1h and 1 in 30 s", describe(st.Handling), describe(st.Service))
		}
		b.mustFinish()
	})
}

// An idle listener notes nothing: no timer fires for the sake of rates.
func TestNothingIsNotedWhileIdle(t *testing.T) {
	bubble(t, func(b *bundle) {
		noted := 0
		r := newRates(func() totals { noted++; return totals{} })
		r.begin()
		ctx, stop := context.WithCancel(b.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.watch(ctx) }()
		advance(time.Minute)
		before := noted
		advance(24 * time.Hour)
		if noted != before || before < 30 || before > 33 {
			t.Errorf("noted %d times in a minute and %d in a day after it, want 32 and none", before, noted-before)
		}
		r.received()
		advance(time.Minute)
		if noted == before {
			t.Error("messages came: nothing was noted")
		}
		stop()
		<-done
	})
}

// depths gives rates a series of depths, each with the time since the one before and what was taken off.
func depths(r *rates, ended *int64, series ...[3]int64) {
	for _, one := range series {
		time.Sleep(time.Duration(one[0]) * time.Second)
		*ended += one[2]
		r.depthRead(one[1])
	}
}

// The arrival is what the depth grew by and what was taken off; unknown where that cannot be told.
func TestArrivalComesFromReadingsOfTheDepth(t *testing.T) {
	for _, c := range []struct {
		name   string
		series [][3]int64 // seconds since the one before, depth, taken off meanwhile
		after  time.Duration
		want   scaling.Optional[float64]
	}{
		{"one reading", [][3]int64{{0, 100, 0}}, 0, scaling.Optional[float64]{}},
		{"growth", [][3]int64{{0, 100, 0}, {10, 150, 0}}, 0, scaling.Known(5.0)},
		{"taken off", [][3]int64{{0, 100, 0}, {10, 100, 50}}, 0, scaling.Known(5.0)},
		{"nothing came", [][3]int64{{0, 100, 0}, {10, 50, 50}}, 0, scaling.Known(0.0)},
		{"others took off", [][3]int64{{0, 100, 0}, {10, 50, 20}}, 0, scaling.Optional[float64]{}},
		{"over the window", [][3]int64{{0, 0, 0}, {10, 1000, 0}, {20, 1100, 0}, {10, 1300, 0}}, 0, scaling.Known(10.0)},
		{"long apart", [][3]int64{{0, 0, 0}, {240, 240, 0}}, 0, scaling.Known(1.0)},
		{"too long apart", [][3]int64{{0, 0, 0}, {301, 301, 0}}, 0, scaling.Optional[float64]{}},
		{"a minute old", [][3]int64{{0, 0, 0}, {10, 10, 0}}, time.Minute, scaling.Known(1.0)},
		{"older", [][3]int64{{0, 0, 0}, {10, 10, 0}}, time.Minute + 1, scaling.Optional[float64]{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				var ended int64
				r := newRates(func() totals { return totals{ended: ended} })
				r.begin()
				depths(r, &ended, c.series...)
				time.Sleep(c.after)
				if got := r.current().arrival; got != c.want {
					t.Errorf("got %s, want %s", describe(got), describe(c.want))
				}
			})
		})
	}
}

// A delivery in progress may be off the queue before it counts as taken off: then nothing came, which is known.
func TestArrivalAllowsForDeliveriesInProgress(t *testing.T) {
	for open, want := range map[int64]scaling.Optional[float64]{3: scaling.Known(0.0), 2: {}} {
		bubble(t, func(b *bundle) {
			var ended int64
			r := newRates(func() totals { return totals{ended: ended, received: 50 + open, settled: 50} })
			r.begin()
			depths(r, &ended, [3]int64{0, 100, 0}, [3]int64{10, 77, 20})
			if got := r.current().arrival; got != want {
				t.Errorf("%d in progress and 3 fewer than were counted: got %s, want %s", open, describe(got), describe(want))
			}
		})
	}
}

// Many readings in a row take no more memory than the window has seconds, and still give the rate.
func TestManyReadingsAreFew(t *testing.T) {
	bubble(t, func(b *bundle) {
		r := newRates(func() totals { return totals{} })
		r.begin()
		for i := range 20_000 {
			time.Sleep(10 * time.Millisecond)
			r.depthRead(int64(i))
		}
		if got := r.current().arrival; !near(got, 100, 0.001) || len(r.readings) > 33 {
			t.Errorf("got %s from %d readings, want 100 from at most 33", describe(got), len(r.readings))
		}
	})
}

// A reading that fails changes nothing, and the rule of the loops is called with what is known.
func TestTheLoadHasTheRates(t *testing.T) {
	bubble(t, func(b *bundle) {
		var failing atomic.Bool
		b.queue.intercept = func(op string, act func() error) error {
			if op == "properties" && failing.Load() {
				return &queue.Error{Op: op, Queue: b.queue.Name(), Kind: queue.ErrUnavailable, Status: 500}
			}
			return act()
		}
		var one sync.Mutex // several loops call the rule
		var loads []Load
		o := options()
		o.Fetch.Loops = Loops{Max: 4}
		o.Fetch.QueueWorkDetected = func(l Load) int {
			one.Lock()
			defer one.Unlock()
			loads = append(loads, l)
			return 1 // so that the depth is read again
		}
		// Not a second, or each reading of the depth could fall between two batches.
		l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(1010 * time.Millisecond); return nil }, o)
		b.put(6000)
		b.run(l)
		advance(70 * time.Second) // the depth is read every 30 s, and twice at least
		st := l.State()
		// A delivery may end between the reading of the depth and that of the count.
		if arrival := st.Arrival.Or(-1); arrival < 0 || arrival > 2 || st.DepthAt.IsZero() || !near(st.Service, 31, 0.1) {
			t.Errorf("got arrival %s at %v and service %s, want 0 and about 31", describe(st.Arrival), st.DepthAt, describe(st.Service))
		}
		one.Lock()
		last := loads[len(loads)-1]
		busy := slices.ContainsFunc(loads, func(l Load) bool { return l.Running+l.Settling > 0 }) // the last may be between two batches
		one.Unlock()
		if last.Slots != 64 || last.Depth != st.Depth || !last.Intake.IsKnown() || !last.Service.IsKnown() || !last.Handling.IsKnown() || !busy {
			t.Errorf("the rule was called with %+v, at last, want what the listener knows", last)
		}
		failing.Store(true)
		advance(30 * time.Second)
		if now := l.State(); now.Arrival != st.Arrival || !now.DepthAt.Equal(st.DepthAt) || now.Errors == 0 {
			t.Errorf("a reading failed: got arrival %s at %v, want that of %v", describe(now.Arrival), now.DepthAt, st.DepthAt)
		}
		advance(40 * time.Second)
		if now := l.State(); now.Arrival.IsKnown() {
			t.Errorf("readings fail for more than a minute: got arrival %s, want it unknown", describe(now.Arrival))
		}
		b.mustFinish()
	})
}

// The JSON form of a state has every figure and gives the state again, except errors.
func TestTheJSONFormOfAStateGoesBothWays(t *testing.T) {
	full := State{
		Load: Load{
			Depth: 7, Slots: 64, Running: 3, Settling: 2, BatchSize: 32,
			Arrival: scaling.Known(1.5), Intake: scaling.Known(2.0), Service: scaling.Known(0.0), Handling: scaling.Known(1500 * time.Millisecond),
		},
		Phase: Draining, PausedBy: ByQueue, PausedSince: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Delayed: 5, Visibility: time.Minute, Outcomes: map[Outcome]int64{Deleted: 9, Poisoned: 1},
		ByCause: map[string]int64{"beacon": 4}, ByFailure: map[string]int64{"throttled": 2},
	}
	for _, want := range []State{{}, full} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got State
		if err := json.Unmarshal(text, &got); err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("got %+v, %v from %s, want %+v", got, err, text, want)
		}
	}
	text, _ := json.Marshal(full)
	for _, part := range []string{`"phase":"draining"`, `"paused_by":"queue metadata"`, `"slots":64`, `"running":3`, `"settling":2`, `"delayed":5`, `"arrival":1.5`, `"intake":2,`, `"service":0,`, `"handling":"1.5s"`, `"outcomes":{"deleted":9,"poisoned":1}`, `"beacon":4`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("got %s, want %s in it", text, part)
		}
	}
	if text, _ := json.Marshal(State{}); !strings.Contains(string(text), `"service":null`) {
		t.Errorf("got %s, want an unknown service to be null", text)
	}
}

// A report at the instant of a note has the same rates whichever of the two comes first.
func TestRatesDoNotDependOnTheOrderOfANote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		received := int64(0)
		r := newRates(func() totals { return totals{received: received} })
		r.begin()
		for i := range int64(60) {
			time.Sleep(rateStep)
			received += i
			before := r.current()
			r.note()
			if after := r.current(); after != before {
				t.Errorf("after %d steps: got intake %s before the note and %s after it", i+1, describe(before.intake), describe(after.intake))
			}
		}
	})
}

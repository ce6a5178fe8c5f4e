package listener

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/queue"
)

// timedJob is a job that takes some time and may first be snoozed.
type timedJob struct {
	Takes, Snooze time.Duration
	Snoozes       int64
}

// change is a change made to a listener, and how long the listener then runs undisturbed.
type change struct {
	put     []timedJob
	set     Settings
	toggle  bool // dequeues and reads of the depth start or stop failing
	runsFor time.Duration
}

func drawStep(t *rapid.T) (s change) {
	switch rapid.SampledFrom([]string{"put", "put", "configure", "configure", "toggle"}).Draw(t, "change") {
	case "put":
		e := timedJob{
			Takes:   seconds(t, "takes", 0, 0, 20, 300, 1200),
			Snooze:  seconds(t, "snooze", 0, 1, 7, 90),
			Snoozes: rapid.Int64Range(0, 2).Draw(t, "snoozes"),
		}
		for range rapid.SampledFrom([]int{1, 1, 32, 64, 300}).Draw(t, "jobs") {
			s.put = append(s.put, e)
		}
	case "configure":
		s.set = drawSettings(t)
	case "toggle":
		s.toggle = true
	}
	s.runsFor = seconds(t, "runs for", 0, 1, 3, 40, 90, 700)
	return s
}

func drawSettings(t *rapid.T) (s Settings) {
	if rapid.Bool().Draw(t, "concurrency?") {
		s.Concurrency = rapid.SampledFrom([]int{1, 5, 64, 200, 500}).Draw(t, "concurrency")
	}
	if rapid.Bool().Draw(t, "loops?") {
		s.Loops.Min = rapid.IntRange(0, 9).Draw(t, "min")
		if rapid.Bool().Draw(t, "max?") {
			s.Loops.Max = s.Loops.Min + rapid.IntRange(0, 9).Draw(t, "more")
		}
		s.Loops.Pause = rapid.SampledFrom([]time.Duration{0, -1, time.Second, time.Minute}).Draw(t, "pause")
	}
	if rapid.Bool().Draw(t, "idle?") {
		s.Idle.Max = seconds(t, "idle", 1, 5, 600, 36000)
	}
	return s
}

func seconds(t *rapid.T, name string, of ...int) time.Duration {
	return time.Duration(rapid.SampledFrom(of).Draw(t, name)) * time.Second
}

// checkedListener is a listener whose state is checked every second.
type checkedListener struct {
	*bundle
	listener *Listener[timedJob]
	down     atomic.Bool
	lastDown time.Time
	idle     time.Duration // Idle.Max in force

	stalled    time.Duration // how long messages have waited beside a free slot without a delivery
	saturated  bool          // the dispatcher was saturated meanwhile
	fresh      bool          // no waiting message was delivered before
	received   int64
	violations []string
}

// checkSecond lets a second pass and checks the listener.
func (w *checkedListener) checkSecond() {
	advance(time.Second)
	st, now := w.listener.State(), w.listener.session.snapshot()
	bounds := now.bounds
	maxHandlers := min(now.concurrency, bounds.Max*now.batch)
	if st.Loops < bounds.Min {
		w.violation("got %d loops, want at least %d", st.Loops, bounds.Min)
	}
	visible, err := w.queue.Queue.Peek(w.Context(), queue.MaxBatch)
	if err != nil {
		w.Fatal(err)
	}
	if w.down.Load() {
		w.lastDown = time.Now()
	}
	recovering := time.Since(w.lastDown) < 40*time.Second
	if len(visible) == 0 || st.Running >= maxHandlers || st.Received > w.received || recovering {
		w.received, w.stalled, w.saturated, w.fresh = st.Received, 0, false, true
		return
	}
	for _, m := range visible {
		w.fresh = w.fresh && m.DequeueCount == 0
	}
	w.saturated = w.saturated || w.listener.session.dispatcher.Saturated()
	w.stalled += time.Second
	maxStall := 4 * time.Second // the linger, the second that releases share, and the one of this check
	if w.fresh {
		maxStall += w.idle * 11 / 10
	}
	if w.saturated {
		maxStall += depthInterval
	}
	if w.stalled > maxStall {
		w.violation("%d messages have waited beside free slots for %v, want at most %v (fresh: %v, saturated: %v): %+v",
			len(visible), w.stalled, maxStall, w.fresh, w.saturated, st)
		w.stalled = 0
	}
}

func (w *checkedListener) violation(format string, args ...any) {
	if len(w.violations) < 5 {
		w.violations = append(w.violations, fmt.Sprintf("after %v: ", time.Since(w.begin))+fmt.Sprintf(format, args...))
	}
}

func (w *checkedListener) play(s change) {
	for _, e := range s.put {
		text, _ := json.Marshal(e)
		w.putText(string(text))
	}
	if s.toggle {
		w.down.Store(!w.down.Load())
	}
	if err := w.listener.Configure(s.set); err != nil {
		w.violation("%v", err)
	}
	if s.set.Idle.Max > 0 {
		w.idle = s.set.Idle.Max
	}
	for begin := time.Now(); time.Since(begin) < s.runsFor; {
		w.checkSecond()
	}
}

// Under any sequence of jobs, failures and settings, a message that could run is fetched within
// Idle.Max, and one that was given back as soon as it is visible. In the end all jobs are done
// and Loops.Min loops run.
func TestConfiguringNeverLosesWork(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	suitetest.Checks(t, 30)
	rapid.Check(t, func(rt *rapid.T) {
		begin := drawSettings(rt)
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 1, 10).Draw(rt, "steps")
		var violations []string
		synctest.Test(t, func(t *testing.T) {
			w := &checkedListener{bundle: setup(t), idle: max(begin.Idle.Max, time.Second)}
			w.queue.intercept = func(op string, act func() error) error {
				if w.down.Load() && (op == "dequeue" || op == "properties") {
					return &queue.Error{Op: op, Kind: queue.ErrThrottled, Status: 503}
				}
				return act()
			}
			o := &Options[timedJob]{Logger: options().Logger, Concurrency: begin.Concurrency, Fetch: FetchOptions{Loops: begin.Loops, Idle: begin.Idle}}
			w.listener = New(w.queue, func(ctx context.Context, m *Message[timedJob]) error {
				if err := sleep(ctx, m.Body.Takes); err != nil || m.DequeueCount > m.Body.Snoozes {
					return err
				}
				return dispatcher.Snooze(m.Body.Snooze)
			}, o)
			w.run(w.listener)
			advance(0)
			puts := 0
			for _, s := range steps {
				w.play(s)
				puts += len(s.put)
			}
			w.down.Store(false)
			enough := Settings{Concurrency: 300, Idle: Idle{Max: time.Minute}, Loops: Loops{Max: 30, Pause: time.Second}}
			w.play(change{set: enough, runsFor: time.Minute})
			for range 24 * 60 {
				if w.depth(w.queue.Queue) == 0 {
					break
				}
				advance(time.Minute)
			}
			advance(10 * time.Minute)
			st := w.listener.State()
			if int(st.Outcomes[Deleted]) != puts {
				w.violation("got %d jobs done, want %d: %+v", st.Outcomes[Deleted], puts, st)
			}
			if bounds := w.listener.session.snapshot().bounds; st.Loops != bounds.Min {
				w.violation("got %d loops at the end, want the minimum, %d", st.Loops, bounds.Min)
			}
			w.mustFinish()
			violations = w.violations
		})
		for _, v := range violations {
			rt.Errorf("%s", v)
		}
	})
}

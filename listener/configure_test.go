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
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// errand is a job that takes some time and may first be snoozed.
type errand struct {
	Takes, Snooze time.Duration
	Snoozes       int64
}

// step is a change made to a listener, and how long it then runs undisturbed.
type step struct {
	put       []errand
	set       Settings
	toggle    bool // dequeues and readings of the depth begin or cease to fail
	leftAlone time.Duration
}

func drawStep(t *rapid.T) (s step) {
	switch rapid.SampledFrom([]string{"put", "put", "configure", "configure", "toggle"}).Draw(t, "step") {
	case "put":
		e := errand{
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
	s.leftAlone = seconds(t, "left alone", 0, 1, 3, 40, 90, 700)
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

// watched is a listener that is checked every second.
type watched struct {
	*bundle
	listener *Listener[errand]
	down     atomic.Bool
	ceased   time.Time // when it was down last
	idle     time.Duration

	stalled   time.Duration // how long work has waited beside a free slot, and none came
	saturated bool          // meanwhile
	fresh     bool          // all that waits was put, and not given back by ourselves
	received  int64
	wrong     []string
}

// second checks the listener and lets a second pass.
func (w *watched) second() {
	after(time.Second)
	st, s := w.listener.State(), w.listener.session
	s.settings.Lock()
	bounds := s.loops.bounds(s.concurrency, s.options.BatchSize)
	most := min(s.concurrency, bounds.Max*s.options.BatchSize) // handlers
	s.settings.Unlock()
	if st.Loops < bounds.Min {
		w.complain("%d loops run, and %d should at least", st.Loops, bounds.Min)
	}
	visible, err := w.queue.Queue.Peek(w.Context(), queue.MaxBatch)
	if err != nil {
		w.Fatal(err)
	}
	if w.down.Load() {
		w.ceased = time.Now()
	}
	if len(visible) == 0 || st.Running >= most || st.Received > w.received || time.Since(w.ceased) < 40*time.Second {
		w.received, w.stalled, w.saturated, w.fresh = st.Received, 0, false, true
		return
	}
	for _, m := range visible {
		w.fresh = w.fresh && m.DequeueCount == 0
	}
	w.saturated = w.saturated || s.dispatcher.Saturated()
	w.stalled += time.Second
	longest := 4 * time.Second // the linger, the second that releases share, and ours
	if w.fresh {
		longest += w.idle * 11 / 10
	}
	if w.saturated {
		longest += depthInterval
	}
	if w.stalled > longest {
		w.complain("%d messages wait beside free slots since %v, want at most %v (put ones only: %v, saturated: %v): %+v", len(visible), w.stalled, longest, w.fresh, w.saturated, st)
		w.stalled = 0
	}
}

func (w *watched) complain(format string, args ...any) {
	if len(w.wrong) < 5 {
		w.wrong = append(w.wrong, fmt.Sprintf("after %v: ", time.Since(w.begin))+fmt.Sprintf(format, args...))
	}
}

func (w *watched) play(s step) {
	for _, e := range s.put {
		text, _ := json.Marshal(e)
		w.putText(string(text))
	}
	if s.toggle {
		w.down.Store(!w.down.Load())
	}
	if err := w.listener.Configure(s.set); err != nil {
		w.complain("%v", err)
	}
	if s.set.Idle.Max > 0 {
		w.idle = s.set.Idle.Max
	}
	for begin := time.Now(); time.Since(begin) < s.leftAlone; {
		w.second()
	}
}

// Under any sequence of jobs, failures and settings, a message that could run is fetched within
// Idle.Max, one that was given back when it becomes visible, and in the end all jobs are done
// and no more loops run than Loops.Min.
func TestConfiguringNeverLosesWork(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		begin := drawSettings(rt)
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 1, 10).Draw(rt, "steps")
		var wrong []string
		synctest.Test(t, func(t *testing.T) {
			w := &watched{bundle: setup(t), idle: max(begin.Idle.Max, time.Second)}
			w.queue.tamper = func(op string, act func() error) error {
				if w.down.Load() && (op == "dequeue" || op == "properties") {
					return &queue.Error{Op: op, Kind: queue.ErrThrottled, Status: 503}
				}
				return act()
			}
			o := &Options[errand]{Logger: options().Logger, Concurrency: begin.Concurrency, Loops: begin.Loops, Idle: begin.Idle}
			w.listener = New(w.queue, func(ctx context.Context, m *Message[errand]) error {
				if err := sleep(ctx, m.Body.Takes); err != nil || m.DequeueCount > m.Body.Snoozes {
					return err
				}
				return dispatcher.Snooze(m.Body.Snooze)
			}, o)
			w.run(w.listener)
			after(0)
			puts := 0
			for _, s := range steps {
				w.play(s)
				puts += len(s.put)
			}
			w.down.Store(false)
			w.play(step{set: Settings{Concurrency: 300, Idle: scaling.Idle{Max: time.Minute}, Loops: Loops{Max: 30, Pause: time.Second}}, leftAlone: time.Minute})
			for range 24 * 60 {
				if w.depth(w.queue.Queue) == 0 {
					break
				}
				after(time.Minute)
			}
			after(10 * time.Minute)
			st := w.listener.State()
			if int(st.Succeeded) != puts {
				w.complain("%d of %d jobs were done: %+v", st.Succeeded, puts, st)
			}
			if bounds := w.listener.session.pool.bounds; st.Loops != bounds.Min {
				w.complain("%d loops are left, want the least, %d", st.Loops, bounds.Min)
			}
			w.finished()
			wrong = w.wrong
		})
		for _, what := range wrong {
			rt.Errorf("%s", what)
		}
	})
}

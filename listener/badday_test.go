package listener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/producer"
)

// The tests in this file are the worst days of a listener with its defaults. Each logs its figure.

// day is a listener and what it handles. The jobs say themselves what becomes of them.
type day struct {
	*bundle
	jobs *producer.Producer[task]

	mu      sync.Mutex
	waits   []time.Duration // of good jobs, from Send to handler; guarded by mu
	started map[string]int  // runs, by name; guarded by mu
	running int             // guarded by mu
	most    int             // that ran at once, since it was last set to 0; guarded by mu
	log     strings.Builder // of logger
	logger  *slog.Logger
}

type task struct {
	Name string
	Good bool
}

var errDay = errors.New("the database is down")

func aDay(t *testing.T, f func(*day)) {
	t.Helper()
	bubble(t, func(b *bundle) {
		d := &day{bundle: b, started: make(map[string]int)}
		d.logger = slog.New(slog.NewTextHandler(&d.log, nil))
		d.jobs = producer.New[task](b.queue.Queue, nil)
		f(d)
	})
}

func (d *day) send(n int, one task, o *producer.SendOptions) {
	d.Helper()
	for i := range n {
		if n > 1 {
			one.Name = fmt.Sprint("job ", i)
		}
		if _, err := d.jobs.Send(d.Context(), one, o); err != nil {
			d.Fatal(err)
		}
	}
}

// sendGood sends a good job at each interval for that long.
func (d *day) sendGood(interval, long time.Duration, o *producer.SendOptions) {
	for at := time.Duration(0); at < long; at += interval {
		time.AfterFunc(at, func() { d.send(1, task{"good", true}, o) })
	}
}

// listener returns a listener whose good jobs succeed; the others are left to the function.
func (d *day) listener(others func(context.Context, *Message[task]) error) *Listener[task] {
	return New(d.queue, func(ctx context.Context, m *Message[task]) error {
		d.mu.Lock()
		d.running++
		d.most = max(d.most, d.running)
		d.started[m.Body.Name]++
		if m.Body.Good {
			d.waits = append(d.waits, time.Since(m.Enqueued))
		}
		d.mu.Unlock()
		defer func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.running--
		}()
		if m.Body.Good {
			return nil
		}
		return others(ctx, m)
	}, &Options[task]{Logger: d.logger})
}

// waited returns how many good jobs were handled, and the wait that 99 % of them stay below.
func (d *day) waited() (n int, p99 time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.Sort(d.waits)
	if n = len(d.waits); n == 0 {
		return 0, 0
	}
	return n, d.waits[n*99/100]
}

// peak returns how many handlers ran at once since the last call.
func (d *day) peak() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, d.most = d.most, d.running
	return n
}

// Good jobs pass a thousand bad ones, whose errors differ in numbers only.
func TestGoodJobsPassAThousandBadOnes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		takes     time.Duration
		listeners int
	}{
		"bad ones of 10 ms":                {10 * time.Millisecond, 1},
		"bad ones of 10 ms, two listeners": {10 * time.Millisecond, 2},
		"bad ones of 2 s":                  {2 * time.Second, 1},
	} {
		aDay(t, func(d *day) {
			d.send(1000, task{}, nil)
			d.sendGood(10*time.Second, 30*time.Minute, nil)
			bad := func(_ context.Context, m *Message[task]) error {
				time.Sleep(c.takes)
				return fmt.Errorf("order %s of batch %d is bad", m.ID, m.DequeueCount)
			}
			ctx, stop := context.WithCancel(d.Context())
			var running sync.WaitGroup
			var all []*Listener[task]
			for range c.listeners {
				l := d.listener(bad)
				all = append(all, l)
				running.Go(func() { _ = l.Run(ctx) })
			}
			advance(31 * time.Minute)
			stop()
			running.Wait()
			var requests, poisoned int64
			for _, l := range all {
				requests, poisoned = requests+l.State().Requests, poisoned+l.State().Outcomes[Poisoned]
			}
			n, p99 := d.waited()
			t.Logf("%s: %d good jobs waited %v (p99), %d are poison, %d requests", name, n, p99, poisoned, requests)
			if n != 180 || p99 > 30*time.Second || c.takes < time.Second && poisoned != 1000 {
				t.Errorf("%s: %d good jobs waited %v, %d are poison", name, n, p99, poisoned)
			}
		})
	}
}

// A lone bad job is poison after its five attempts.
func TestALoneBadJobIsPoisonAfterItsAttempts(t *testing.T) {
	t.Parallel()
	aDay(t, func(d *day) {
		d.send(1, task{Name: "bad"}, nil)
		l := d.listener(func(context.Context, *Message[task]) error { return errDay })
		d.run(l)
		advance(7 * time.Minute)
		if s := l.State(); s.Outcomes[Poisoned] != 1 || d.started["bad"] != 5 {
			t.Errorf("%d runs, %d poisoned after 7 min", d.started["bad"], s.Outcomes[Poisoned])
		}
		d.mustFinish()
	})
}

// Jobs of a key whose handlers fail slowly leave the slots to others.
func TestAKeyThatFailsLeavesTheSlotsToOthers(t *testing.T) {
	t.Parallel()
	aDay(t, func(d *day) {
		d.send(500, task{}, &producer.SendOptions{Key: "bad"})
		d.sendGood(time.Second, 30*time.Minute, nil)
		l := d.listener(func(context.Context, *Message[task]) error {
			time.Sleep(10 * time.Second)
			return errDay
		})
		d.run(l)
		advance(31 * time.Minute)
		n, p99 := d.waited()
		t.Logf("%d jobs of other keys waited %v (p99)", n, p99)
		if n != 1800 || p99 > 30*time.Second {
			t.Errorf("%d jobs of other keys waited %v", n, p99)
		}
		d.mustFinish()
	})
}

// After a short outage handlers of ten minutes use all slots within a minute.
func TestAfterAShortOutageLongHandlersUseAllSlots(t *testing.T) {
	t.Parallel()
	aDay(t, func(d *day) {
		d.send(500, task{}, nil)
		begin := time.Now()
		l := d.listener(func(ctx context.Context, _ *Message[task]) error {
			if time.Since(begin) < 2*time.Second {
				return errDay
			}
			select {
			case <-time.After(10 * time.Minute):
			case <-ctx.Done():
			}
			return nil
		})
		d.run(l)
		advance(62 * time.Second)
		n := d.peak()
		t.Logf("a minute after an outage of 2 s %d of 64 slots run", n)
		if n != 64 {
			t.Errorf("%d of 64 slots run", n)
		}
		d.stop()
		<-d.done
	})
}

// After an outage the listener goes on although the handlers of its first tries hang.
func TestHandlersThatHangAfterAnOutageHoldNothingUp(t *testing.T) {
	t.Parallel()
	aDay(t, func(d *day) {
		const n, hang, outage = 200, 3, 5 * time.Minute
		d.send(n, task{}, nil)
		begin, release := time.Now(), make(chan struct{})
		var after, done atomic.Int64
		l := d.listener(func(context.Context, *Message[task]) error {
			if time.Since(begin) < outage {
				return errDay
			}
			if after.Add(1) <= hang {
				<-release
			}
			done.Add(1)
			return nil
		})
		d.run(l)
		advance(outage + 5*time.Minute)
		t.Logf("five minutes after an outage %d of %d are done while %d hang", done.Load(), n, hang)
		if done.Load() != n-hang || l.State().Outcomes[Poisoned] != 0 {
			t.Errorf("%d of %d are done, %d poisoned", done.Load(), n, l.State().Outcomes[Poisoned])
		}
		close(release)
		d.mustFinish()
	})
}

// In an outage of everything a job has at most the attempts of the first minute, for six hours. Then
// all slots run within a minute.
func TestAnOutageOfEverythingCostsTheAttemptsOfItsFirstMinute(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		outage, failure time.Duration
		poisoned        bool
	}{
		{3 * time.Hour, 0, false},
		{3 * time.Hour, 10 * time.Millisecond, false},
		{3 * time.Hour, 20 * time.Second, false},
		{8 * time.Hour, 0, true},
	} {
		aDay(t, func(d *day) {
			n := suitetest.Size(150, 500)
			d.send(n, task{}, nil)
			begin, most := time.Now(), 0
			l := d.listener(func(_ context.Context, m *Message[task]) error {
				if time.Since(begin) < c.outage {
					d.mu.Lock()
					most = max(most, m.Attempt)
					d.mu.Unlock()
					time.Sleep(c.failure)
					return errDay
				}
				time.Sleep(30 * time.Second)
				return nil
			})
			d.run(l)
			advance(c.outage)
			requests := l.State().Requests
			d.peak()
			advance(time.Minute)
			peak := d.peak()
			advance(30 * time.Minute)
			s := l.State()
			t.Logf("%v of failures of %v: attempt %d at most, %d poisoned, %d requests; %d of 64 slots ran within a minute, %d succeeded", c.outage, c.failure, most, s.Outcomes[Poisoned], requests, peak, s.Outcomes[Deleted])
			switch {
			case c.poisoned:
				if s.Outcomes[Poisoned] == 0 {
					t.Errorf("%v: none is poison", c.outage)
				}
			case most > 4 || s.Outcomes[Poisoned] != 0 || peak != 64 || s.Outcomes[Deleted] != int64(n):
				t.Errorf("%v of failures of %v: attempt %d, %d poisoned, %d slots, %d succeeded", c.outage, c.failure, most, s.Outcomes[Poisoned], peak, s.Outcomes[Deleted])
			}
			d.mustFinish()
		})
	}
}

// What is limited is in State, in its reasons, and in the log, and Ready stays true.
func TestStateNamesWhatFails(t *testing.T) {
	t.Parallel()
	aDay(t, func(d *day) {
		d.send(200, task{}, nil)
		var over atomic.Bool
		l := d.listener(func(context.Context, *Message[task]) error {
			if over.Load() {
				return nil
			}
			return errDay
		})
		d.run(l)
		advance(2 * time.Minute)
		s := l.State()
		reasons := strings.Join(s.Reasons(), "\n")
		if len(s.Failing) != 2 || !s.Ready() || !strings.Contains(reasons, "all jobs: limited to 1 handlers since 2000-01-01T00:01:00Z: the database is down") ||
			!strings.Contains(reasons, "limited to 6 handlers since") {
			t.Errorf("ready is %v, failing %v, because of:\n%s", s.Ready(), s.Failing, reasons)
		}
		over.Store(true)
		advance(10 * time.Minute)
		d.mustFinish()
		log := d.log.String()
		for line, want := range map[string]int{"failures are limited": 2, "failures are not limited any more": 2, `source="all jobs" since=2000-01-01T00:01:00.000Z slots=1 error="the database is down"`: 2} {
			if got := strings.Count(log, line); got != want {
				t.Errorf("the log has %d times %q, want %d:\n%s", got, line, want, log)
			}
		}
		if begun := strings.Index(log, `level=WARN msg="failures are limited"`); begun < 0 || begun > strings.Index(log, `level=INFO msg="failures are not limited any more"`) {
			t.Errorf("want a warning first:\n%s", log)
		}
		if got := l.State().Reasons(); len(got) == 0 || got[0] != "its phase is stopped" {
			t.Errorf("after the end: %q", got)
		}
	})
}

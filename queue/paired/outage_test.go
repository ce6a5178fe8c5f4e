package paired_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue/paired"
)

// told are the reports of hooks.
type told struct {
	mu  sync.Mutex
	all []string // guarded by mu
}

func (l *told) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, fmt.Sprintf(format, args...))
}

// The hooks hear of each failover and return with its times, and the log has one line of each.
func TestFailoversAndReturnsAreReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		begin := time.Now()
		var told told
		report := func(name string) func(paired.Outage) {
			return func(o paired.Outage) {
				at := func(t time.Time) time.Duration {
					if t.IsZero() {
						return -1
					}
					return t.Sub(begin)
				}
				told.add("%s of %v: failing %v, failed over %v, returned %v, %d failures, %d diverted, %d twice, %v", name, o.Queue,
					at(o.FirstFailure), at(o.FailedOver), at(o.Returned), o.Failures, o.Diverted, o.MaybeTwice, o.Err)
			}
		}
		b := setup(t, paired.Options{OnFailover: report("failover"), OnReturn: report("return"), ProbeInterval: time.Minute})
		time.Sleep(time.Second)
		for range 2 {
			b.west.fault("orders", fault{err: unknown})
			b.fails("1")
			time.Sleep(10 * time.Second)
			b.sends("2", "east")
			b.sends("3", "east")
			b.west.fault("orders", fault{})
			time.Sleep(time.Minute)
			b.sends("4", "west")
		}
		want := []string{
			"failover of west/orders: failing 1s, failed over 11s, returned -1ns, 2 failures, 0 diverted, 0 twice, outcome unknown: no response",
			"return of west/orders: failing 1s, failed over 11s, returned 1m11s, 2 failures, 2 diverted, 1 twice, outcome unknown: no response",
			"failover of west/orders: failing 1m11s, failed over 1m21s, returned -1ns, 2 failures, 0 diverted, 0 twice, outcome unknown: no response",
			"return of west/orders: failing 1m11s, failed over 1m21s, returned 2m21s, 2 failures, 2 diverted, 1 twice, outcome unknown: no response",
		}
		if !slices.Equal(told.all, want) {
			t.Errorf("got\n%q\nwant\n%q", told.all, want)
		}
		lines := []string{"WARN sends go to the backlog queues", "INFO sends go to the primary queue again"}
		if got := b.log.all(); !slices.Equal(got, slices.Concat(lines, lines)) {
			t.Errorf("log: got %q, want %q twice", got, lines)
		}
	})
}

// A hook that panics hurts nothing, and is logged; the next one is called all the same.
func TestHooksThatDoNotReturnHurtNothing(t *testing.T) {
	for name, f := range map[string]func(paired.Outage){
		"panic": func(paired.Outage) { panic("broken hook") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := setup(t, paired.Options{FailoverInterval: -1, OnFailover: f, OnReturn: f})
				b.failOver()
				b.west.fault("orders", fault{})
				time.Sleep(time.Minute)
				b.is(paired.Healthy)
				b.sends("text", "west")
				want := []string{
					"WARN sends go to the backlog queues", "ERROR a hook of a paired queue did not return",
					"INFO sends go to the primary queue again", "ERROR a hook of a paired queue did not return",
				}
				if got := b.log.all(); !slices.Equal(got, want) {
					t.Errorf("log: got %q, want %q", got, want)
				}
			})
		})
	}
}

// panicking is a log handler that panics.
type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool { panic("broken logger") }

// A logger that panics hurts nothing.
func TestALoggerThatPanicsHurtsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		heard := 0
		b := setup(t, paired.Options{
			FailoverInterval: -1, Logger: slog.New(panicking{}),
			OnFailover: func(paired.Outage) { heard++; panic("broken hook") },
		})
		b.failOver()
		if heard != 1 {
			t.Errorf("the hook was called %d times, want 1", heard)
		}
	})
}

// A hook may send, and look at the state.
func TestAHookMaySend(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told told
		var q *paired.Queue
		hook := func(o paired.Outage) {
			m, err := q.Enqueue(t.Context(), "from the hook", nil)
			told.add("%v %v %v", q.State().Status, m.Queue.Account, err)
		}
		b := setup(t, paired.Options{FailoverInterval: -1, OnFailover: hook, OnReturn: hook})
		q = b.queue
		b.failOver()
		b.west.fault("orders", fault{})
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{"failed over east <nil>", "healthy west <nil>"}; !slices.Equal(told.all, want) {
			t.Errorf("got %q, want %q", told.all, want)
		}
	})
}

// Failovers and returns are reported in order, one at a time, however slow the hook.
func TestReportsComeInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told told
		hook := func(name string) func(paired.Outage) {
			return func(paired.Outage) {
				told.add("%s begins", name)
				time.Sleep(10 * time.Minute)
				told.add("%s ends", name)
			}
		}
		b := setup(t, paired.Options{FailoverInterval: -1, ProbeInterval: time.Minute, OnFailover: hook("failover"), OnReturn: hook("return")})
		b.west.fault("orders", fault{err: unavailable})
		slow := make(chan string, 1)
		go func() { slow <- b.send("waits for the hook") }()
		synctest.Wait()
		for range 3 {
			b.west.fault("orders", fault{})
			time.Sleep(time.Minute)
			b.sends("probe", "west")
			b.west.fault("orders", fault{err: unavailable})
			b.sends("others do not wait", "east")
		}
		if got := <-slow; got != "east" {
			t.Errorf("got %q, want the backlog", got)
		}
		var want []string
		for range 4 { // the last return is that of a reading, while the hook was busy
			want = append(want, "failover begins", "failover ends", "return begins", "return ends")
		}
		if !slices.Equal(told.all, want) {
			t.Errorf("got\n%q\nwant\n%q", told.all, want)
		}
	})
}

// Close ends a reading that is in flight, may be called twice, and sends still work and return.
func TestCloseEndsTheReadings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, ProbeInterval: time.Minute})
		b.failOver()
		b.west.fault("orders", fault{err: unavailable, takes: time.Hour, all: true})
		time.Sleep(2*time.Minute + time.Second) // a reading hangs
		begin := time.Now()
		b.queue.Close()
		b.queue.Close()
		if took := time.Since(begin); took != 0 {
			t.Errorf("Close took %v, want no time", took)
		}
		if err := b.queue.State().LastError; !errors.Is(err, unavailable) {
			t.Errorf("last error: got %v, want that of the primary queue and not that of Close", err)
		}
		b.west.called("")
		time.Sleep(time.Hour)
		if n := b.west.called(""); n != 0 {
			t.Errorf("requests after Close: got %d, want 0", n)
		}
		b.west.fault("orders", fault{})
		b.sends("probe", "west")
		b.failOver()
		time.Sleep(time.Hour)
		b.is(paired.FailedOver)
		if n := b.west.called("properties"); n != 0 {
			t.Errorf("readings after Close: got %d, want 0", n)
		}
	})
}

// The goroutine that reads lives while the queue is failed over, and not longer.
func TestNothingRunsWhileThePrimaryIsHealthy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, ProbeInterval: time.Minute})
		for range 3 {
			b.failOver()
			time.Sleep(time.Second)
			if got := watchers(); got != 1 {
				t.Errorf("goroutines in an outage: got %d, want 1", got)
			}
			b.west.fault("orders", fault{})
			time.Sleep(time.Minute)
			b.sends("probe", "west")
			synctest.Wait()
			if got := watchers(); got != 0 {
				t.Errorf("goroutines after it: got %d, want 0", got)
			}
		}
	})
}

// watchers counts the goroutines that watch a primary queue.
func watchers() int {
	stacks := make([]byte, 1<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "paired.(*Queue).read(")
}

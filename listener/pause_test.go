package listener

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
)

// since returns the requests of these operations, or of all, that began after a time.
func (c *requestLog) since(at time.Time, ops ...string) (found []request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.log {
		if !r.at.After(at) {
			continue
		}
		for _, op := range ops {
			if r.op == op {
				found = append(found, r)
			}
		}
		if len(ops) == 0 {
			found = append(found, r)
		}
	}
	return found
}

// lockedLog is a log that several goroutines write.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count returns how many lines contain all parts.
func (l *lockedLog) count(parts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
lines:
	for line := range strings.Lines(l.text.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		n++
	}
	return n
}

// A pause stops the fetching at once. What runs goes on, with its leases, and is settled. Nothing
// else is sent, however long the pause. The resumption polls at once.
func TestAPauseStopsTheFetchingAtOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(200)
		o := options()
		o.Concurrency = 40
		o.Lease.Visibility = FixedVisibility(30 * time.Second)
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error { return sleep(ctx, 100*time.Second) }, o)
		b.run(l)
		advance(50 * time.Second)
		running := l.State().Running
		l.Pause()
		paused := time.Now()
		advance(30 * time.Second)
		if st := l.State(); st.Running != running || running != 40 || st.Renewed == 0 || st.PausedBy != ByProgram || !st.PausedSince.Equal(paused) || !st.Ready() {
			t.Errorf("in the pause: %d handlers of %d, state %+v", st.Running, running, st)
		}
		advance(time.Minute)
		settled := time.Now()
		if st := l.State(); st.Outcomes[Deleted] != int64(running) || st.Running != 0 {
			t.Errorf("after the handlers: state %+v, want %d succeeded", st, running)
		}
		advance(24 * time.Hour)
		if got := b.queue.since(paused, "dequeue", "properties", "create"); len(got) != 0 {
			t.Errorf("requests in the pause: %+v, want none", got)
		}
		if got := b.queue.since(settled); len(got) != 0 {
			t.Errorf("requests in the pause when nothing ran any more: %+v, want none", got)
		}
		resumed := time.Now()
		l.Resume()
		advance(0)
		if got := b.queue.sent("dequeue"); !got[len(got)-1].at.Equal(resumed) || l.State().Running != 40 || l.State().PausedBy != NotPaused || !l.State().PausedSince.IsZero() {
			t.Errorf("after the resumption: last dequeue %+v, state %+v; want one at once, and all slots used", got[len(got)-1], l.State())
		}
		advance(time.Hour)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 200 {
			t.Errorf("state %+v, want 200 succeeded", st)
		}
	})
}

// A listener that is paused before Run starts paused, and is ready. Two pauses are ended by one
// resumption. Log and observer hear of each change once.
func TestAListenerMayStartPaused(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(5)
		var log lockedLog
		var told []string
		o := options()
		o.Logger = textLogger(&log)
		o.Observer.Paused = func(q queue.Name, by PausedBy) { told = append(told, fmt.Sprintf("%v: %v", q, by)) }
		l := New(b.queue, nothing, o)
		l.Resume()
		l.Pause()
		l.Pause()
		if st := l.State(); st.PausedBy != ByProgram || st.Phase != Waiting || st.Ready() {
			t.Errorf("before Run: state %+v, want paused and not ready", st)
		}
		b.run(l)
		advance(time.Hour)
		l.Pause()
		if st := l.State(); len(b.queue.since(time.Time{})) != 0 || st.PausedBy != ByProgram || !st.Ready() || !st.Healthy() {
			t.Errorf("requests %+v, state %+v; want none, paused and ready", b.queue.since(time.Time{}), st)
		}
		l.Resume()
		l.Resume()
		advance(time.Second)
		if st := l.State(); st.Outcomes[Deleted] != 5 || st.PausedBy != NotPaused {
			t.Errorf("after the resumption: state %+v, want 5 succeeded", st)
		}
		b.mustFinish()
		l.Pause()
		l.Resume()
		l.Pause()
		if st := l.State(); st.PausedBy != NotPaused {
			t.Errorf("a pause after the stop: %v, want none", st.PausedBy)
		}
		if want := []string{"test/jobs: program", "test/jobs: "}; !slices.Equal(told, want) {
			t.Errorf("the observer was told %v, want %v", told, want)
		}
		if p, r := log.count("msg=paused", "by=program"), log.count("msg=resumed", "was_paused_by=program"); p != 1 || r != 1 {
			t.Errorf("the log has %d pauses and %d resumptions, want one each", p, r)
		}
	})
}

// The depth is not read in a pause either, while slow handlers take all open slots.
func TestAPauseStopsTheReadingOfTheDepth(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(100)
		o := options()
		o.Fetch.BatchSize, o.Concurrency = 4, 40
		o.Fetch.QueueWorkDetected = func(Load) int { return 1 }
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error { return sleep(ctx, time.Hour) }, o)
		b.run(l)
		advance(10 * time.Minute)
		before := len(b.queue.sent("properties"))
		l.Pause()
		advance(10 * time.Minute)
		paused := len(b.queue.sent("properties")) - before
		l.Resume()
		advance(10 * time.Minute)
		if after := len(b.queue.sent("properties")) - before; before < 10 || paused != 0 || after < 10 {
			t.Errorf("the depth was read %d times before the pause, %d in it and %d after it; want none in it", before, paused, after)
		}
		l.Halt()
		b.mustFinish()
	})
}

// What a dequeue in flight brings is handled.
func TestADequeueInFlightIsHandledInAPause(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(3)
		b.queue.latency = time.Second
		l := New(b.queue, nothing, options())
		b.run(l)
		advance(500 * time.Millisecond)
		l.Pause()
		advance(time.Minute)
		if n := len(b.queue.sent("dequeue")); l.State().Outcomes[Deleted] != 3 || n != 1 || len(b.queue.sent("properties")) != 0 {
			t.Errorf("state %+v after %d dequeues, want 3 succeeded after one", l.State(), n)
		}
		b.mustFinish()
	})
}

// A loop that waits for slots returns those that become free in the pause: all are used afterwards.
func TestSlotsThatAreReservedInAPauseAreReturned(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(100)
		o := options()
		o.Concurrency, o.Fetch.BatchSize = 6, 4
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error { return sleep(ctx, 10*time.Second) }, o)
		b.run(l)
		for range 5 {
			advance(5 * time.Second) // all slots are taken
			l.Pause()
			at := time.Now()
			advance(30 * time.Second) // and now none
			if got := b.queue.since(at, "dequeue"); len(got) != 0 || l.State().Running != 0 {
				t.Fatalf("in the pause: dequeues %+v, %d handlers; want none", got, l.State().Running)
			}
			l.Resume()
			advance(time.Second)
			if n := l.State().Running; n != 6 {
				t.Fatalf("after the resumption: %d handlers, want 6", n)
			}
		}
		l.Halt()
		b.mustFinish()
	})
}

// A pause that begins while the metadata are read is not followed by a dequeue, nor by a reading if
// it begins while slots are awaited.
func TestAPauseWhileMetadataAreReadStopsTheDequeue(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(5)
		b.queue.latency = 5 * time.Second
		l := New(b.queue, nothing, following())
		b.run(l)
		advance(time.Second)
		l.Pause()
		advance(time.Hour)
		if n := len(b.queue.since(time.Time{})); n != 1 {
			t.Errorf("%d requests, want the reading only", n)
		}
		l.Resume()
		advance(time.Minute)
		if l.State().Outcomes[Deleted] != 5 {
			t.Errorf("state %+v, want 5 succeeded", l.State())
		}
		b.mustFinish()
	})
	bubble(t, func(b *bundle) {
		b.put(1)
		o := following()
		o.Concurrency = 1
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error { return sleep(ctx, 90*time.Second) }, o)
		b.run(l)
		advance(time.Second)
		l.Pause()
		at := time.Now()
		advance(time.Hour)
		if got := b.queue.since(at, "properties", "dequeue"); len(got) != 0 {
			t.Errorf("sent %+v in the pause, want nothing", got)
		}
		b.mustFinish()
	})
}

// A paused listener stops like any other: at once if nothing runs, and with its handlers otherwise.
func TestAPausedListenerStops(t *testing.T) {
	for name, halt := range map[string]bool{"stop": false, "halt": true} {
		bubble(t, func(b *bundle) {
			b.put(3)
			l := New(b.queue, func(ctx context.Context, _ *Message[job]) error { return sleep(ctx, 10*time.Second) }, options())
			b.run(l)
			advance(5 * time.Second)
			l.Pause()
			advance(time.Second)
			at := time.Now()
			if halt {
				l.Halt()
			}
			b.mustFinish()
			wantTook, wantDone := 4*time.Second, int64(3)
			if halt {
				wantTook, wantDone = 0, 0
			}
			if st := l.State(); time.Since(at) != wantTook || st.Outcomes[Deleted] != wantDone || st.Loops != 0 || st.Phase != Stopped {
				t.Errorf("%s: took %v, state %+v; want %v and %d succeeded", name, time.Since(at), st, wantTook, wantDone)
			}
			if d := b.depth(b.queue); d != 3-wantDone {
				t.Errorf("%s: %d messages left, want %d", name, d, 3-wantDone)
			}
		})
	}
}

// Settings can be changed in a pause: loops in excess end at once, further ones start, and none of
// them sends anything.
func TestSettingsCanBeChangedInAPause(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Fetch.Loops, o.Concurrency = Loops{Min: 4, Max: 4}, 128
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(10 * time.Second)
		l.Pause()
		advance(10 * time.Second)
		for _, n := range []int{2, 6, 1, 3} {
			if err := l.Configure(Settings{Loops: Loops{Min: n, Max: n}, Idle: Idle{Max: time.Hour}}); err != nil {
				t.Fatal(err)
			}
			at := time.Now()
			advance(time.Minute)
			if st := l.State(); st.Loops != n || len(b.queue.since(at.Add(-time.Second))) != 0 {
				t.Errorf("%d loops after %d requests, want %d and none", st.Loops, len(b.queue.since(at)), n)
			}
		}
		b.put(300)
		l.Resume()
		advance(time.Second)
		if st := l.State(); st.Outcomes[Deleted] != 300 || st.Loops != 3 {
			t.Errorf("after the resumption: state %+v, want 300 succeeded by 3 loops", st)
		}
		b.mustFinish()
	})
}

// What becomes visible in a pause is handled after it without a wait, also by a loop that sleeps for
// hours.
func TestAResumptionPollsAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		before, in time.Duration // how long before and in the pause
		released   bool          // the message was given back, and falls due in the pause
	}{
		"asleep":                    {time.Hour, time.Minute, false},
		"asleep, given back":        {time.Minute, 10 * time.Minute, true},
		"not asleep any more":       {time.Minute, 5 * time.Hour, false},
		"at once":                   {time.Hour, 0, false},
		"given back and long awake": {time.Minute, 5 * time.Hour, true},
	} {
		bubble(t, func(b *bundle) {
			o := options()
			o.Fetch.Idle = Idle{Min: 2 * time.Hour, Max: 2 * time.Hour}
			o.RetryDelay = func(int, error) time.Duration { return 5 * time.Minute }
			var handled atomic.Int64
			if c.released {
				b.send(1)
			}
			l := New(b.queue, func(_ context.Context, m *Message[job]) error {
				if c.released && m.Attempt == 1 {
					return errors.New("not yet")
				}
				handled.Add(1)
				return nil
			}, o)
			b.run(l)
			advance(c.before)
			l.Pause()
			advance(c.in)
			if !c.released {
				b.put(1)
			}
			if n := handled.Load(); n != 0 {
				t.Errorf("%s: %d handled in the pause", name, n)
			}
			l.Resume()
			advance(0)
			if n := handled.Load(); n != 1 {
				t.Errorf("%s: %d handled at once after the pause, want 1", name, n)
			}
			b.mustFinish()
		})
	}
}

// A probe in an outage of the handlers that a pause prevents is made up for at the resumption.
func TestAPauseDoesNotDelayAProbe(t *testing.T) {
	bubble(t, func(b *bundle) {
		for i := range 100 {
			b.send(i)
		}
		o := following()
		o.RetryDelay = func(int, error) time.Duration { return time.Hour }
		l := New(b.queue, func(context.Context, *Message[job]) error { return errors.New("the database is down") }, o)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "properties" && time.Since(b.begin) > 30*time.Second {
				l.Pause() // a loop has reserved a slot for a probe
			}
			return act()
		}
		b.run(l)
		for l.State().PausedBy == NotPaused && time.Since(b.begin) < time.Hour {
			advance(100 * time.Millisecond)
		}
		resumed := time.Now().Add(-1)
		l.Resume()
		advance(time.Second)
		if got := b.queue.since(resumed, "dequeue"); len(got) == 0 {
			t.Error("no dequeues within a second of the resumption, want those of a round")
		}
		b.mustFinish()
	})
}

// Pauses and resumptions of many callers end as the last of them says, and nothing is lost.
func TestPausesOfManyCallers(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(500)
		o := options()
		o.Concurrency, o.Fetch.BatchSize = 40, 8
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error { return sleep(ctx, 500*time.Millisecond) }, o)
		b.run(l)
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				for n := range 50 {
					l.Pause()
					time.Sleep(time.Duration(i*n) * time.Millisecond)
					l.Resume()
					time.Sleep(time.Duration(i+n) * time.Millisecond)
				}
			})
		}
		callers.Wait()
		advance(time.Minute)
		if st := l.State(); st.Outcomes[Deleted] != 500 || st.PausedBy != NotPaused || st.Running != 0 {
			t.Errorf("state %+v, want 500 succeeded and no pause", st)
		}
		b.mustFinish()
	})
}

// The names of the reasons to pause are those of their bits.
func TestPausedByNamesEveryReason(t *testing.T) {
	for p, want := range map[pauses]PausedBy{0: NotPaused, programPauses: ByProgram, queuePauses: ByQueue, programPauses | queuePauses: ByProgramAndQueue} {
		if got := p.by(); got != want {
			t.Errorf("reasons %b: got %q, want %q", p, got, want)
		}
	}
	if got, want := (State{}), (State{Phase: Waiting, PausedBy: NotPaused}); got.Phase != want.Phase || got.PausedBy != want.PausedBy {
		t.Errorf("the zero state: got phase %q, paused by %q; want waiting and not paused", got.Phase, got.PausedBy)
	}
}

// A paused listener takes no events: they go to other instances, and those that come all the same
// cause no request. The resumption polls at once, also when no loop runs, and then events come again.
func TestAPausedListenerTakesNoEvents(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Minute)
		b.mustBeIdle(l)
		for range 3 {
			l.Pause()
			synctest.Wait()
			at := time.Now().Add(-1)
			if l.State().Listening || source.pick(nil) != nil {
				b.Error("got a paused listener to which events go, want none")
			}
			b.put(1)
			b.publish(source)
			l.Wake()
			advance(time.Hour)
			if got := b.queue.since(at); len(got) != 0 {
				b.Errorf("got the requests %+v in the pause, want none", got)
			}
			done := l.State().Outcomes[Deleted]
			l.Resume()
			advance(0)
			if got := l.State().Outcomes[Deleted] - done; got != 1 {
				b.Errorf("got %d jobs done at the resumption, want 1", got)
			}
			advance(40 * time.Second)
			b.mustBeIdle(l)
			if !l.State().Listening || source.pick(nil) == nil {
				b.Error("got a listener to which no events go after the pause")
			}
		}
		b.mustFinish()
	})
}

// With wake-ups nobody reads the flag while nothing comes. What the first dequeue after an event brings
// is given back, and the listener is paused until the flag is removed.
func TestTheFlagPausesAListenerWithWakeups(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := connected()
		o := wakeOptions(source)
		o.Fetch.SafetyPoll = noSafety
		l := New(b.queue, nothing, o)
		b.run(l)
		b.setMetadata("paused", "yes")
		advance(24 * time.Hour)
		b.mustBeIdle(l)
		for i := range 3 {
			b.put(1)
			b.publish(source)
			advance(10 * time.Minute)
			if st := l.State(); st.Outcomes[Deleted] != 0 || st.Outcomes[Returned] != 1 || st.PausedBy != ByQueue || st.Listening {
				b.Errorf("event %d: got %+v, want one given back and a pause", i, st)
			}
		}
		b.setMetadata()
		advance(67 * time.Second)
		if st := l.State(); st.Outcomes[Deleted] != 3 || st.PausedBy != NotPaused {
			b.Errorf("after the flag: got %+v, want all done", st)
		}
		advance(time.Minute)
		b.mustBeIdle(l)
		b.mustFinish()
	})
}

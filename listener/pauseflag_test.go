package listener

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
)

const flagSet = "2026-11-22T10:00:00Z"

// Within about a minute of the flag every busy instance of a fleet stops fetching, finishes what it
// has, and says so. While the flag is there each reads it once a minute, never more often, and sends
// nothing else. When it is removed all is handled.
func TestTheFlagPausesAFleet(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a fleet")
	}
	bubble(t, func(b *bundle) {
		b.put(3000)
		b.setMetadata("owner", "ada")
		var log lockedLog
		ctx, stop := context.WithCancel(b.Context())
		done := make(chan error)
		const instances = 3
		var fleet []*Listener[job]
		var logs []*requestLog
		for i := range instances {
			o := options()
			o.Seed, o.Concurrency, o.Logger = uint64(i+1), 16, textLogger(&log)
			requests := &requestLog{}
			l := New(&recordingQueue{Queue: b.queue.Queue, requestLog: requests}, func(ctx context.Context, _ *Message[job]) error {
				return sleep(ctx, 10*time.Second)
			}, o)
			fleet, logs = append(fleet, l), append(logs, requests)
			go func() { done <- l.Run(ctx) }()
		}
		advance(75 * time.Second)
		b.setMetadata("owner", "ada", "Paused", flagSet)
		advance(75 * time.Second) // a minute, until the next dequeue
		at := time.Now()
		advance(time.Hour)
		left := b.depth(b.queue)
		for i, l := range fleet {
			if st := l.State(); st.PausedBy != ByQueue || !st.Ready() || st.Running != 0 || st.PausedSince.After(at) {
				t.Errorf("instance %d: state %+v, want paused by the queue", i, st)
			}
			if got := logs[i].since(at, "dequeue"); len(got) != 0 {
				t.Errorf("instance %d: dequeues in the pause %+v", i, got)
			}
			readings := logs[i].since(at, "properties")
			if n := len(readings); n < 54 || n > 60 {
				t.Errorf("instance %d: read %d times in an hour, want 54…60", i, n)
			}
			for n := 1; n < len(readings); n++ {
				if gap := readings[n].at.Sub(readings[n-1].at); gap < time.Minute {
					t.Errorf("instance %d: read again after %v, want a minute at least", i, gap)
				}
			}
		}
		for i := 1; i < instances; i++ {
			if fleet[i].State().Requests == 0 || logs[i].since(at)[30].at.Equal(logs[i-1].since(at)[30].at) {
				t.Errorf("instances %d and %d read in step", i-1, i)
			}
		}
		if n := log.count("msg=paused", `by="queue metadata"`); left < 1000 || n != instances {
			t.Errorf("%d messages left, %d pauses in the log; want most, and one for each instance", left, n)
		}
		b.setMetadata("owner", "ada")
		advance(67 * time.Second)
		for i, l := range fleet {
			if st := l.State(); st.PausedBy != NotPaused || st.Running == 0 {
				t.Errorf("instance %d after the flag: state %+v, want busy", i, st)
			}
		}
		advance(2 * time.Hour)
		if n := b.depth(b.queue); n != 0 || log.count("msg=resumed") != instances {
			t.Errorf("%d messages left, want all handled", n)
		}
		stop()
		for range instances {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// An idle listener never reads the flag, whatever is set. It reads it when a dequeue brings messages, and
// gives them back.
func TestAnIdleListenerReadsNoFlag(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates a day")
	}
	bubble(t, func(b *bundle) {
		o := options()
		o.Fetch.Loops = Loops{Min: 2}
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Hour)
		b.setMetadata("paused", "yes")
		advance(24 * time.Hour)
		if n := len(b.queue.sent("properties")); n != 0 || l.State().PausedBy != NotPaused {
			t.Errorf("idle: %d readings, state %+v; want none", n, l.State())
		}
		b.put(1)
		advance(2 * time.Second)
		b.put(5)
		advance(time.Hour)
		if st := l.State(); st.Outcomes[Deleted] != 0 || st.Outcomes[Returned] != 1 || st.PausedBy != ByQueue {
			t.Errorf("state %+v, want one given back and a pause", st)
		}
		b.mustFinish()
	})
}

// C-12: thirty days in a pause cost at most 43,200 requests, and a busy day 1,440 more.
func TestTheFlagCostsARequestAMinute(t *testing.T) {
	if testing.Short() {
		t.Skip("plays hours")
	}
	bubble(t, func(b *bundle) {
		b.put(1)
		b.setMetadata("paused", flagSet)
		l := New(b.queue, nothing, options())
		b.run(l)
		advance(time.Second)
		at := time.Now()
		advance(30 * 24 * time.Hour)
		if n := len(b.queue.since(at)); n > 43200 || n < 39200 {
			t.Errorf("%d requests in 30 days, want 39,200…43,200", n)
		}
		b.mustFinish()
	})
	bubble(t, func(b *bundle) {
		l := New(b.queue, nothing, options())
		b.run(l)
		for range 10 * 60 {
			b.put(1)
			advance(6 * time.Second)
		}
		if n := len(b.queue.sent("properties")); n > 60 || n < 54 {
			t.Errorf("%d readings in an hour of single messages, want 54…60", n)
		}
		b.mustFinish()
	})
}

// The metadata that are read for another reason, or before the first dequeue, pause too, and save
// the reading for the flag.
func TestEveryReadingOfTheMetadataPauses(t *testing.T) {
	bubble(t, func(b *bundle) { // before the first dequeue
		b.put(5)
		b.setMetadata("paused", flagSet)
		l := New(b.queue, nothing, following())
		b.run(l)
		advance(time.Hour)
		if n := len(b.queue.sent("dequeue")); n != 0 || l.State().PausedBy != ByQueue {
			t.Errorf("with ReadMetadata: %d dequeues, state %+v; want none", n, l.State())
		}
		b.mustFinish()
	})
	bubble(t, func(b *bundle) { // with the depth, every 30 s
		b.put(2000)
		o := options()
		o.Fetch.BatchSize, o.Concurrency = 1, 40
		o.Fetch.QueueWorkDetected = func(Load) int { return 1 }
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error { return sleep(ctx, time.Second) }, o)
		b.run(l)
		advance(10 * time.Minute)
		readings := len(b.queue.sent("properties"))
		if readings > 21 {
			t.Errorf("with a backlog: %d readings in 10 minutes, want those of the depth only", readings)
		}
		b.setMetadata("paused", flagSet)
		advance(32 * time.Second)
		if l.State().PausedBy != ByQueue {
			t.Errorf("half a minute after the flag: state %+v, want paused", l.State())
		}
		b.setMetadata()
		advance(70 * time.Second)
		if l.State().Running == 0 {
			t.Errorf("after the flag: state %+v, want busy", l.State())
		}
		b.mustFinish()
	})
	bubble(t, func(b *bundle) { // and the flag brings the settings
		q := b.managed()
		b.put(1)
		o := following()
		b.setMetadata("paused", flagSet)
		l := New(q, func(context.Context, *Message[job]) error { return nil }, o)
		b.run(l)
		advance(10 * time.Second)
		b.setMetadata("paused", flagSet, "defaulttimeout", "90")
		advance(70 * time.Second)
		b.setMetadata("defaulttimeout", "90")
		readings := len(b.queue.sent("properties"))
		advance(66 * time.Second)
		if got, n := q.visibility(), len(b.queue.sent("properties")); got != 90*time.Second || n != readings+1 {
			t.Errorf("visibility %v after %d further readings, want 90 s after one", got, n-readings)
		}
		b.mustFinish()
	})
}

// While the program pauses the listener too, nothing is read. Its resumption reads, and the flag
// alone decides then.
func TestBothPausesAreEndedByBothResumptions(t *testing.T) {
	for name, flagFirst := range map[string]bool{"the flag first": true, "the program first": false} {
		bubble(t, func(b *bundle) {
			var told []string
			o := options()
			o.Observer.Paused = func(_ queue.Name, by PausedBy) { told = append(told, string(by)) }
			b.put(1)
			b.setMetadata("paused", flagSet)
			l := New(b.queue, nothing, o)
			b.run(l)
			advance(10 * time.Second)
			l.Pause()
			at := time.Now()
			b.put(1)
			advance(time.Hour)
			if got := b.queue.since(at); len(got) != 0 || l.State().PausedBy != ByProgramAndQueue {
				t.Errorf("%s: sent %+v while both pause, state %+v", name, got, l.State())
			}
			want := "queue metadata, program and queue metadata, queue metadata, "
			if flagFirst {
				b.setMetadata()
				l.Resume()
				advance(time.Second) // the reading is due
			} else {
				l.Resume()
				advance(time.Hour)
				if l.State().PausedBy != ByQueue || l.State().Outcomes[Deleted] != 0 {
					t.Errorf("%s: state %+v, want still paused by the queue", name, l.State())
				}
				b.setMetadata()
				advance(67 * time.Second)
			}
			if st := l.State(); st.PausedBy != NotPaused || st.Outcomes[Deleted] != 2 {
				t.Errorf("%s: state %+v, want both handled", name, st)
			}
			if got := strings.Join(told, ", "); got != want {
				t.Errorf("%s: told %s, want %s", name, got, want)
			}
			b.mustFinish()
		})
	}
}

// Without the permission to read the metadata the listener works, and says once that it follows no
// flag. It does not ask again. A refusal that dequeues meet too is no such thing.
func TestWithoutPermissionTheFlagIsNotFollowed(t *testing.T) {
	for code, c := range map[string]struct {
		status       int
		wantReadings int
	}{
		"AuthorizationPermissionMismatch":   {403, 1},
		"AuthorizationResourceTypeMismatch": {403, 1},
		"AuthorizationFailure":              {403, 1},
		"AuthenticationFailed":              {403, 10},
		"QueueDisabled":                     {403, 10},
		"NoAuthenticationInformation":       {401, 10},
		"":                                  {0, 10},
	} {
		bubble(t, func(b *bundle) {
			b.setMetadata("paused", flagSet)
			b.queue.intercept = func(op string, act func() error) error {
				if op == "properties" {
					return &queue.Error{Op: op, Kind: queue.ErrUnauthorized, Status: c.status, Code: code}
				}
				return act()
			}
			var log lockedLog
			var told errorList
			o := options()
			o.Logger, o.OnError = textLogger(&log), told.add
			l := New(b.queue, nothing, o)
			b.run(l)
			for range 600 {
				b.put(1)
				advance(time.Second)
			}
			readings, lines := len(b.queue.sent("properties")), log.count("millrace pause", "permission")
			if l.State().Outcomes[Deleted] != 600 || readings != c.wantReadings || (lines == 1) != (readings == 1) || (told.count() == 0) != (readings == 1) {
				t.Errorf("%q: %d readings, %d log lines, %d errors, state %+v; want %d readings", code, readings, lines, told.count(), l.State(), c.wantReadings)
			}
			b.mustFinish()
		})
	}
}

// A reading that fails changes nothing, and the next comes a minute later: neither for a listener
// that runs, nor for one that is paused, also if the permission is withdrawn meanwhile.
func TestAFailedReadingOfTheFlagChangesNothing(t *testing.T) {
	for name, failure := range map[string]error{
		"unavailable": &queue.Error{Kind: queue.ErrUnavailable, Status: 500},
		"refused":     &queue.Error{Kind: queue.ErrUnauthorized, Status: 403, Code: "AuthorizationPermissionMismatch"},
		"unknown":     queue.ErrOutcomeUnknown,
		"deleted":     &queue.Error{Kind: queue.ErrQueueBeingDeleted, Status: 409},
		"foreign":     errors.New("something else"),
	} {
		bubble(t, func(b *bundle) {
			b.put(1)
			b.setMetadata("paused", flagSet)
			var failing atomic.Bool
			b.queue.intercept = func(op string, act func() error) error {
				if op == "properties" && failing.Load() {
					return failure
				}
				return act()
			}
			var told errorList
			var log lockedLog
			o := options()
			o.OnError, o.Logger = told.add, textLogger(&log)
			l := New(b.queue, nothing, o)
			b.run(l)
			advance(10 * time.Second)
			failing.Store(true)
			at := time.Now()
			advance(time.Hour)
			readings := len(b.queue.since(at, "properties"))
			if st := l.State(); st.PausedBy != ByQueue || readings < 54 || readings > 60 || told.count() != readings || len(b.queue.since(at, "dequeue")) != 0 || log.count("not followed") != 0 {
				t.Errorf("%s, paused: %d readings, %d errors, state %+v; want still paused", name, readings, told.count(), st)
			}
			failing.Store(false)
			b.setMetadata()
			advance(67 * time.Second)
			if l.State().PausedBy != NotPaused {
				t.Errorf("%s: state %+v after the flag was removed, want not paused", name, l.State())
			}
			failing.Store(true)
			b.setMetadata("paused", flagSet)
			for range 300 {
				b.put(1)
				advance(time.Second)
			}
			if st := l.State(); st.PausedBy != NotPaused || st.Outcomes[Deleted] != 301 {
				t.Errorf("%s, running: state %+v, want all handled", name, st)
			}
			b.mustFinish()
		})
	}
}

// A queue that is deleted has no flag: the listener waits for it, or creates it. One that comes back
// with the flag pauses again.
func TestADeletedQueueIsNotPaused(t *testing.T) {
	for name, create := range map[string]bool{"created by the listener": true, "created by others": false} {
		bubble(t, func(b *bundle) {
			b.put(1)
			b.setMetadata("paused", flagSet)
			var told errorList
			o := options()
			o.Create, o.OnError = create, told.add
			l := New(b.queue, nothing, o)
			b.run(l)
			advance(10 * time.Second)
			if err := b.queue.Queue.(queue.Manager).Drop(b.Context()); err != nil {
				t.Fatal(err)
			}
			advance(35 * time.Second) // the name is free again
			if !create {
				if err := b.queue.Create(b.Context(), nil); err != nil {
					t.Fatal(err)
				}
			}
			advance(70 * time.Second)
			b.put(3)
			advance(2 * time.Second)
			if st := l.State(); st.PausedBy != NotPaused || st.Outcomes[Returned] != 1 || st.Outcomes[Deleted] != 3 || told.count() != 0 {
				t.Errorf("%s: state %+v, errors %s; want 3 succeeded", name, st, told.text())
			}
			b.setMetadata("paused", flagSet)
			for range 70 {
				b.put(1)
				advance(time.Second)
			}
			if st := l.State(); st.PausedBy != ByQueue {
				t.Errorf("%s: state %+v, want paused again", name, st)
			}
			b.setMetadata()
			advance(67 * time.Second)
			if st := l.State(); st.PausedBy != NotPaused {
				t.Errorf("%s: state %+v, want not paused any more", name, st)
			}
			b.mustFinish()
		})
	}
}

// A reading whose response is late does not undo a newer one.
func TestALateReadingOfTheFlagIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.put(1)
		l := New(b.queue, nothing, options())
		b.run(l)
		advance(time.Second)
		s := l.current()
		begin := func() int { now, _ := s.tell(event{what: asks}); return now.readings }
		older, newer := begin(), begin()
		s.applyProperties(newer, map[string]string{"paused": flagSet}, nil)
		s.applyProperties(older, nil, nil)
		if by := l.State().PausedBy; by != ByQueue {
			t.Errorf("after a late reading: %v, want paused by the queue", by)
		}
		b.mustFinish()
		s.applyProperties(begin(), nil, nil)
		if by := l.State().PausedBy; by != ByQueue {
			t.Errorf("a reading after the stop: %v, want no change", by)
		}
	})
}

// The stop does not wait for a reading of the flag, and does not report its end.
func TestTheStopEndsAReadingOfTheFlag(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		var told errorList
		o := options()
		o.OnError = told.add
		l := New(hangingProperties{b.queue}, nothing, o)
		b.run(l)
		advance(10 * time.Second)
		at := time.Now()
		b.mustFinish()
		if took := time.Since(at); took != 0 || told.count() != 0 || l.State().Outcomes[Deleted] != 1 {
			t.Errorf("the stop took %v, errors %s; want none", took, told.text())
		}
	})
}

// hangingProperties is a queue whose properties never come.
type hangingProperties struct{ queue.Queue }

func (hangingProperties) Properties(ctx context.Context) (queue.Properties, error) {
	<-ctx.Done()
	return queue.Properties{}, fmt.Errorf("properties: %w", ctx.Err())
}

// A visibility that was found is not written while the flag is set, because the write might set it
// again after it was removed. It is written later, and all else is kept.
func TestNoMetadataAreWrittenInAPause(t *testing.T) {
	bubble(t, func(b *bundle) {
		q := b.managed()
		l := New(q, taking(100*time.Second), sharing())
		b.run(l)
		b.keepBusy(2, 2*time.Minute)
		b.setMetadata("paused", flagSet, "owner", "ada")
		b.put(500)
		advance(2 * time.Hour)
		if got := b.queue.sent("set metadata"); len(got) != 0 || l.State().PausedBy != ByQueue {
			t.Errorf("written in the pause: %+v, state %+v", got, l.State())
		}
		b.setMetadata("owner", "ada")
		b.keepBusy(30, 2*time.Minute)
		if got := b.metadata(); got["defaulttimeout"] != "200" || got["owner"] != "ada" || len(got) != 2 {
			t.Errorf("after the pause the metadata are %v", got)
		}
		b.mustFinish()
	})
}

// A fleet that was idle when its queue was paused starts none of a thousand jobs that come in the
// pause. Each worker gives its first batch back without an attempt, by as many requests as it took
// to handle it. After the pause each job runs once, at its first attempt.
func TestAnIdleFleetStartsNothingInAPause(t *testing.T) {
	const instances = 16
	for name, jobs := range map[string]int{"as many as they take": 1000, "fewer": 20} {
		bubble(t, func(b *bundle) {
			var attempts [6]atomic.Int32
			ctx, stop := context.WithCancel(b.Context())
			done := make(chan error)
			var logs []*requestLog
			for i := range instances {
				o := options()
				o.Seed = uint64(i + 1)
				requests := &requestLog{latency: 5 * time.Millisecond}
				logs = append(logs, requests)
				l := New(&recordingQueue{Queue: b.queue.Queue, requestLog: requests}, func(_ context.Context, m *Message[job]) error {
					attempts[m.Attempt].Add(1)
					return nil
				}, o)
				go func() { done <- l.Run(ctx) }()
			}
			sent := func(op string) (n int) {
				for _, one := range logs {
					n += len(one.sent(op))
				}
				return n
			}
			advance(5 * time.Minute)
			b.setMetadata("paused", flagSet)
			advance(5 * time.Minute)
			for i := range jobs {
				b.send(i)
			}
			idle := sent("properties")
			advance(50 * time.Second)
			ran, readings, updates := attempts[1].Load(), sent("properties")-idle, sent("update")
			if ran != 0 || readings > instances || updates > instances*min(jobs, 32) {
				t.Errorf("%s, %d jobs: %d ran in the pause, %d readings, %d updates; want none, a reading for each instance, one batch of updates for each", name, jobs, ran, readings, updates)
			}
			b.setMetadata()
			advance(2 * time.Minute)
			if n := attempts[1].Load(); int(n) != jobs || b.depth(b.queue) != 0 {
				t.Errorf("%s: %d of %d jobs ran at their first attempt after the pause, %d are left", name, n, jobs, b.depth(b.queue))
			}
			stop()
			for range instances {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Nothing can be recorded in a message without an envelope. A fleet gives it back as rarely as it
// would retry it, and runs it before another delivery would make it poison.
func TestAPausedFleetMakesNoForeignMessagePoison(t *testing.T) {
	bubble(t, func(b *bundle) {
		f := b.startFleet(16, func(*Options[job]) {})
		b.setMetadata("paused", flagSet)
		advance(time.Minute)
		b.put(1)
		ended := func() (ran, poisoned int64) {
			for _, l := range f.listeners {
				ran, poisoned = ran+l.State().Outcomes[Deleted], poisoned+l.State().Outcomes[Poisoned]
			}
			return ran, poisoned
		}
		advance(4 * time.Minute)
		if ran, poisoned := ended(); ran != 0 || poisoned != 0 {
			t.Errorf("%d ran and %d are poison after 4 minutes of the pause, want none", ran, poisoned)
		}
		advance(time.Hour)
		if ran, poisoned := ended(); ran != 1 || poisoned != 0 {
			t.Errorf("%d ran and %d are poison after an hour, want one to run", ran, poisoned)
		}
		f.finish()
	})
}

// A batch waits for the reading of the flag, however that ends, but for 2 s and a quarter of its
// leases at most. A stop in that time starts no handler.
func TestABatchWaitsForTheFlag(t *testing.T) {
	failed := &queue.Error{Kind: queue.ErrUnavailable, Status: 503}
	for name, c := range map[string]struct {
		visibility, reading time.Duration // 0: the default
		err                 error
		stop                time.Duration
		want                time.Duration // until the handler starts; negative: it does not
	}{
		"answered":          {reading: time.Second, want: time.Second},
		"failed":            {reading: time.Second, err: failed, want: time.Second},
		"slow":              {reading: time.Hour, want: 2 * time.Second},
		"slow, short":       {reading: time.Hour, visibility: 6 * time.Second, want: 1500 * time.Millisecond},
		"stopped meanwhile": {reading: time.Hour, stop: time.Second, want: -1},
	} {
		bubble(t, func(b *bundle) {
			b.send(1)
			b.queue.intercept = func(op string, act func() error) error {
				if op == "properties" {
					time.Sleep(c.reading)
					return cmp.Or(c.err, act())
				}
				return act()
			}
			o := options()
			o.Lease.Visibility = FixedVisibility(cmp.Or(c.visibility, 30*time.Second))
			started := time.Duration(-1)
			l := New(b.queue, func(context.Context, *Message[job]) error { started = time.Since(b.begin); return nil }, o)
			b.run(l)
			advance(cmp.Or(c.stop, 3*time.Second))
			b.mustFinish()
			if st := l.State(); started != c.want || st.Outcomes[Returned] != 1-st.Outcomes[Deleted] {
				t.Errorf("%s: the handler started after %v, state %+v; want %v, or given back", name, started, st, c.want)
			}
		})
	}
}

// What a dequeue brings that was in flight when another loop found the flag is given back too.
func TestADequeueInFlightIsGivenBackInAPause(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		b.send(2)
		b.setMetadata("paused", flagSet)
		var dequeues atomic.Int64
		b.queue.intercept = func(op string, act func() error) error {
			if op == "dequeue" {
				time.Sleep(time.Duration(dequeues.Add(1)) * time.Second)
			}
			return act()
		}
		o := options()
		o.Fetch.BatchSize, o.Fetch.Loops = 1, Loops{Min: 2}
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(10 * time.Second)
		if st := l.State(); st.Outcomes[Deleted] != 0 || st.Outcomes[Returned] != 2 || st.PausedBy != ByQueue {
			t.Errorf("state %+v, want two given back", st)
		}
		b.mustFinish()
	})
}

// A worker that handles jobs for longer than a minute dequeues rarely. It starts none in a pause.
func TestAWorkerWithLongJobsStartsNoneInAPause(t *testing.T) {
	bubble(t, func(b *bundle) {
		for i := range 3 {
			b.send(i)
		}
		o := options()
		o.Concurrency = 1
		l := New(b.queue, taking(10*time.Minute), o)
		b.run(l)
		advance(time.Minute)
		b.setMetadata("paused", flagSet)
		advance(time.Hour)
		if st := l.State(); st.Outcomes[Deleted] != 1 || st.Running != 0 || st.Outcomes[Returned] != 1 {
			t.Errorf("state %+v, want one succeeded, one given back, none running", st)
		}
		b.mustFinish()
	})
}

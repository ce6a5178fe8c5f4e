package listener

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/beacon"
)

// control returns a control queue, and a viewer of it, for a listener with these options.
func (b *bundle) control(o *Options[job]) (*recordingQueue, *beacon.Viewer) {
	b.Helper()
	inner := b.queue.Queue.Sibling("-control")
	if err := inner.Create(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	control := &recordingQueue{Queue: inner, requestLog: &requestLog{}}
	o.Beacon = BeaconOptions{Queue: control, Instance: "a"}
	v, err := beacon.NewViewer(inner)
	if err != nil {
		b.Fatal(err)
	}
	return control, v
}

// reports returns what a viewer sees.
func (b *bundle) reports(v *beacon.Viewer) []beacon.Report {
	b.Helper()
	view, err := v.View(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return view.Reports
}

// A-03, V-09: a listener with the option reports its load, its pause, its drain and its end.
func TestAListenerReportsItsLoad(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		_, v := b.control(o)
		l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(25 * time.Second); return nil }, o)
		b.put(20)
		b.run(l)
		advance(10 * time.Second)
		r := b.reports(v)[0]
		if r.Instance != "a" || r.Queue != b.queue.Name() || r.Phase != "running" || r.Received != 20 || r.Load.Running != 20 || r.Load.Slots != 64 || r.Load.Handling.IsKnown() || r.Load.Intake != scaling.Known(2.0) || r.Ended != 0 {
			t.Errorf("got %+v, want 20 running, none ended and the handling time unknown", r)
		}
		var sample scaling.Sample
		fleet, err := beacon.NewFleet(b.queue.Name())
		if err != nil {
			b.Fatal(err)
		}
		view, _ := v.View(b.Context())
		fleet.Measure(&sample, view)
		if sample.Ready != scaling.Known(1) || sample.InWork != scaling.Known[int64](20) || sample.Slots != scaling.Known(64.0) {
			t.Errorf("got %+v, want one ready with 20 in work", sample)
		}
		l.Pause()
		advance(10 * time.Second)
		if r := b.reports(v)[0]; !r.Paused || r.Phase != "running" {
			t.Errorf("paused: got %+v", r)
		}
		b.stop() // the handlers run for 5 s more
		advance(time.Second)
		if err := <-b.done; err != nil {
			t.Errorf("Run: got error %v", err)
		}
		r = b.reports(v)[0]
		if r.Phase != "stopped" || r.Ended != 20 || r.Load.Running != 0 || r.Load.Handling != scaling.Known(25*time.Second) || r.Next != 0 {
			t.Errorf("stopped: got %+v, want all 20 ended", r)
		}
		advance(time.Minute)
		if all := b.reports(v); len(all) != 0 {
			t.Errorf("a minute later: got %+v, want nothing", all)
		}
	})
}

// The first report has the phase and the loops with which the listener starts.
func TestTheFirstReportHasTheFirstLoops(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		_, v := b.control(o)
		o.Fetch.Loops.Min = 2
		b.run(New(b.queue, func(context.Context, *Message[job]) error { return nil }, o))
		advance(time.Second)
		if r := b.reports(v)[0]; r.Up != 0 || r.Phase != "running" || r.Load.Loops != 2 {
			t.Errorf("got %+v, want a report of the start with two loops", r)
		}
		b.mustFinish()
	})
}

// While it drains the listener still reports, and says so at once.
func TestADrainIsReported(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		_, v := b.control(o)
		o.Grace = time.Hour
		b.put(1)
		b.run(New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(10 * time.Minute); return nil }, o))
		advance(5 * time.Minute)
		if r := b.reports(v)[0]; r.Next != time.Minute {
			t.Errorf("nothing changes: got the next report in %v, want 1m", r.Next)
		}
		b.stop()
		advance(10 * time.Second)
		if r := b.reports(v)[0]; r.Phase != "draining" || r.Load.Running != 1 {
			t.Errorf("got %+v, want one that drains", r)
		}
		advance(3 * time.Minute)
		if all := b.reports(v); len(all) != 1 || all[0].Phase != "draining" {
			t.Errorf("got %+v, want it still reported", all)
		}
		if err := <-b.done; err != nil {
			t.Errorf("Run: got error %v", err)
		}
	})
}

// Work that comes to an idle listener is reported at once, not when the next report is due.
func TestWorkOnAnIdleListenerIsReportedAtOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		_, v := b.control(o)
		b.run(New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(5 * time.Second); return nil }, o))
		advance(5*time.Minute + 15*time.Second) // the next report is due in more than 50 s
		b.put(1)
		advance(2 * time.Second)
		if r := b.reports(v)[0]; r.Received != 1 || r.Next != 10*time.Second {
			t.Errorf("got %+v, want the message that came", r)
		}
		b.mustFinish()
	})
}

// An idle listener with wake-ups sends nothing but its reports: those are counted under a cause of their own.
func TestTheBeaconIsTheOnlyRequestOfAnIdleListener(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		control, _ := b.control(o)
		o.Wakeups, o.Fetch.SafetyPoll = connected(), -1
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Minute)
		before, reported := countsOf(l), len(control.sent("update"))
		advance(24 * time.Hour)
		now := countsOf(l).Minus(before)
		got := now.Cause(metered.CauseBeacon).Requests
		if got != now.Total().Requests || got < 1440 || got > 1810 {
			t.Errorf("got %v in a day, want 1,440…1,810 reports and nothing else", now)
		}
		if n := int64(len(control.sent("update")) - reported); now.Operation(metered.Update).Requests != n {
			t.Errorf("got %v, and %d updates were sent", now, n)
		}
		st := l.State()
		if st.ByCause["beacon"] != countsOf(l).Cause(metered.CauseBeacon).Requests || st.ByCause["unknown"] != 0 {
			t.Errorf("got %+v, want the reports under beacon", st.ByCause)
		}
		b.mustFinish()
	})
}

// A control queue that does not work costs its reports, and nothing else: jobs are handled, Run ends in time, OnError is told.
func TestABrokenControlQueueDoesNotAffectTheListener(t *testing.T) {
	for name, broken := range map[string]func(op string, act func() error) error{
		"missing": func(op string, _ func() error) error {
			return &queue.Error{Op: op, Queue: queue.Name{Queue: "control"}, Kind: queue.ErrQueueMissing, Status: 404}
		},
		"forbidden": func(op string, _ func() error) error {
			return &queue.Error{Op: op, Queue: queue.Name{Queue: "control"}, Kind: queue.ErrUnauthorized, Status: 403}
		},
		"slow": func(op string, act func() error) error { time.Sleep(500 * time.Millisecond); return act() },
		"lost answers": func(op string, act func() error) error {
			_ = act()
			return &queue.Error{Op: op, Queue: queue.Name{Queue: "control"}, Kind: queue.ErrOutcomeUnknown}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				var told errorList
				o := options()
				o.OnError = told.add
				control, _ := b.control(o)
				control.intercept = broken
				var handled atomic.Int64
				l := New(b.queue, func(context.Context, *Message[job]) error { handled.Add(1); return nil }, o)
				b.put(100)
				b.run(l)
				advance(10 * time.Minute)
				st := l.State()
				if handled.Load() != 100 || st.Outcomes[Deleted] != 100 || !st.Ready() || b.depth(b.queue.Queue) != 0 {
					t.Errorf("got %d handled, %+v", handled.Load(), st)
				}
				begin := time.Now()
				b.mustFinish()
				if took := time.Since(begin); took > 1100*time.Millisecond {
					t.Errorf("the stop took %v, want a second at most", took)
				}
				if name == "slow" {
					if len(told.list) != 0 {
						t.Errorf("got errors %v", told.list)
					}
					return
				}
				if n := len(told.list); n < 8 || n > 20 || !strings.Contains(told.list[0].Error(), "control queue") {
					t.Errorf("got %d errors in ten minutes, the first %v; want about 12 that name the control queue", n, told.list[0])
				}
				if st.Errors != int64(len(told.list)) || st.LastError == nil || st.PollError != nil {
					t.Errorf("got %+v, want the errors counted, and no failed poll", st)
				}
			})
		})
	}
}

// Handlers that ignore the stop and a control queue that hangs together do not make Run later than it promises.
func TestRunReturnsInTimeBesideAControlQueueThatHangs(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		control, _ := b.control(o)
		hang := make(chan struct{})
		o.Beacon.Queue = &hangingQueue{Queue: control.Queue}
		o.Grace, o.Lease.SettleTimeout, o.Lease.StuckAfter = 2*time.Second, 3*time.Second, -1
		b.put(1)
		b.run(New(b.queue, func(context.Context, *Message[job]) error { <-hang; return nil }, o))
		advance(time.Minute)
		begin := time.Now()
		err := b.finish()
		took := time.Since(begin)
		var abandoned *AbandonedError
		if !errors.As(err, &abandoned) || took > 7*time.Second {
			t.Errorf("got %v after %v, want an AbandonedError within 2 s + 3 s + 2 s", err, took)
		}
		close(hang)
		advance(0)
	})
}

// hangingQueue is a queue that takes one message; after that requests hang until their context ends.
type hangingQueue struct {
	queue.Queue
	sent bool
}

func (h *hangingQueue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if !h.sent {
		h.sent = true
		return h.Queue.Enqueue(ctx, text, o)
	}
	<-ctx.Done()
	return queue.Message{}, ctx.Err()
}

func (h *hangingQueue) Update(ctx context.Context, l queue.Lease, _ string, _ time.Duration) (queue.Lease, error) {
	<-ctx.Done()
	return l, ctx.Err()
}

// Options that cannot work are refused before anything is sent.
func TestABadBeaconIsRefused(t *testing.T) {
	bubble(t, func(b *bundle) {
		for want, o := range map[string]BeaconOptions{
			"the control queue is the queue of the jobs": {Queue: b.queue},
			"give it a unit": {Queue: b.queue.Sibling("-control"), Interval: 30},
		} {
			err := New(b.queue, nothing, &Options[job]{Beacon: o}).Check()
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "test/jobs") {
				t.Errorf("got error %v, want %q", err, want)
			}
		}
	})
}

// Two listeners of one process are one instance with two reports.
func TestListenersOfAProcessAreOneInstance(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		_, v := b.control(o)
		o.Beacon.Instance = ""
		other := &recordingQueue{Queue: b.queue.Queue.Sibling("-other"), requestLog: &requestLog{}}
		if err := other.Queue.Create(b.Context(), nil); err != nil {
			t.Fatal(err)
		}
		second := &bundle{T: b.T, queue: other}
		b.run(New(b.queue, nothing, o))
		second.run(New(other, nothing, o))
		advance(time.Second)
		all := b.reports(v)
		if len(all) != 2 || all[0].Instance != all[1].Instance || all[0].Run == all[1].Run || !slices.ContainsFunc(all, func(r beacon.Report) bool { return r.Queue == other.Name() }) {
			t.Errorf("got %+v, want two reports of one instance", all)
		}
		var s scaling.Sample
		view, _ := v.View(b.Context())
		fleet, err := beacon.NewFleet(b.queue.Name(), other.Name())
		if err != nil {
			b.Fatal(err)
		}
		fleet.Measure(&s, view)
		if s.Ready != scaling.Known(1) || s.Slots != scaling.Known(128.0) {
			t.Errorf("got %+v, want one instance of 128 slots", s)
		}
		b.mustFinish()
		second.mustFinish()
	})
}

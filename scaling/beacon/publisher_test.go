package beacon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/scaling"
)

// an instance has one message, which it updates in place and deletes at the stop; the last report goes by itself.
func TestAReportIsUpdatedInPlace(t *testing.T) {
	bubble(t, func(w *world) {
		i := w.start(w.control, Options{Instance: "a"})
		first := w.messages()[0]
		for n := int64(2); n <= 5; n++ {
			i.set(func(r *Report) { r.Received, r.Ended = 10*n, 9*n })
			advance(10 * time.Second)
			view := w.view()
			if len(view.Reports) != 1 || len(w.messages()) != 1 || w.messages()[0].ID != first.ID {
				t.Fatalf("got %+v in %d messages, want one report in the same message", view, len(w.messages()))
			}
			r := view.Reports[0]
			up := time.Duration(n-1) * 10 * time.Second
			if r.Instance != "a" || r.Queue != jobs || r.Sequence != n || r.Received != 10*n || r.Ended != 9*n || r.Up != up || r.Put != 0 || r.Next != 10*time.Second || !r.At.Equal(time.Now()) {
				t.Errorf("report %d: got %+v", n, r)
			}
		}
		i.set(func(r *Report) { r.Ended = 50 })
		i.stop()
		if all := w.messages(); len(all) != 1 || all[0].ID == first.ID {
			t.Errorf("stopped: got %+v, want the last report alone", all)
		}
		if view := w.view(); len(view.Reports) != 1 || view.Reports[0].Phase != "stopped" || view.Reports[0].Ended != 50 || view.Reports[0].Sequence != 6 {
			t.Errorf("stopped: got %+v, want the last counts", view)
		}
		advance(30 * time.Second)
		if all := w.messages(); len(all) != 0 {
			t.Errorf("30 s later: got %+v, want nothing", all)
		}
		if c := w.meter.Counts(); c.Total().Requests != 1+4+2+3 || c.Cause(metered.CauseBeacon).Requests != 10 {
			t.Errorf("got %v, want 10 requests for the beacon, three of them to see whether there is room", c)
		}
		if errs := w.takeErrors(); errs != nil {
			t.Errorf("got errors %v", errs)
		}
	})
}

// What the beacon costs in a day, at the default interval: while something changes, and while nothing does.
func TestADayOfReports(t *testing.T) {
	for _, c := range []struct {
		name        string
		busy        bool
		least, most int64
	}{
		{"busy", true, 8_640, 8_960},
		{"idle", false, 1_440, 1_810},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				i := w.start(w.control, Options{})
				for n := range int64(24 * 360) {
					if c.busy {
						i.set(func(r *Report) { r.Received = n })
					}
					advance(10 * time.Second)
					if n%360 == 0 {
						if view := w.view(); len(view.Reports) != 1 || len(w.messages()) != 1 {
							t.Fatalf("after %d reports: got %+v in %d messages", n, view, len(w.messages()))
						}
					}
				}
				total := w.meter.Counts().Total().Requests
				t.Logf("%s: %d requests a day: %v", c.name, total, w.meter.Counts())
				if total < c.least || total > c.most || w.takeErrors() != nil {
					t.Errorf("got %d requests, want %d…%d and no errors", total, c.least, c.most)
				}
				i.stop()
			})
		})
	}
}

// While nothing changes reports follow less and less often, and say so; a change is reported at once if the last one is old,
// with all that changes at that instant.
func TestReportsAreRareWhileNothingChanges(t *testing.T) {
	bubble(t, func(w *world) {
		i := w.start(w.control, Options{})
		defer i.stop()
		var ups, nexts []time.Duration
		for range 300 {
			if r := w.view().Reports[0]; len(ups) == 0 || ups[len(ups)-1] != r.Up {
				ups, nexts = append(ups, r.Up), append(nexts, r.Next)
			}
			advance(time.Second)
		}
		if got, want := fmt.Sprint(ups, nexts), "[0s 10s 30s 1m10s 2m10s 3m10s 4m10s] [10s 20s 40s 1m0s 1m0s 1m0s 1m0s]"; got != want {
			t.Errorf("got reports at %s, want %s", got, want)
		}
		i.set(func(r *Report) { r.Received = 1 })
		i.Changed()
		advance(0)
		i.set(func(r *Report) { r.Received = 2 }) // at the same instant: it is in the same report
		advance(together)
		if r := w.view().Reports[0]; r.Received != 2 || r.Next != 10*time.Second {
			t.Errorf("changed: got %+v, want both changes and the next in 10 s", r)
		}
		for n := range int64(50) { // changes do not make it more often
			i.set(func(r *Report) { r.Received = 2 + n })
			i.Changed()
			advance(time.Second)
		}
		if r := w.view().Reports[0]; r.Sequence < 7+1+4 || r.Sequence > 7+1+6 {
			t.Errorf("50 changes in 50 s: got sequence %d, want about 5 more than 8", r.Sequence)
		}
	})
}

// Somebody takes the message: the instance puts a new one, and nobody sees it twice.
func TestALostReceiptIsMadeGood(t *testing.T) {
	bubble(t, func(w *world) {
		i := w.start(w.control, Options{})
		defer i.stop()
		for n := range int64(5) {
			if _, err := w.control.Dequeue(t.Context(), 32, 25*time.Second); err != nil {
				t.Fatal(err)
			}
			i.set(func(r *Report) { r.Received++ })
			advance(10 * time.Second)
			if view := w.view(); len(view.Reports) != 1 || view.Reports[0].Received != n+1 {
				t.Errorf("got %+v, want one report with %d", view, n+1)
			}
		}
		if errs := w.takeErrors(); errs != nil {
			t.Errorf("got errors %v, want none: it is made good", errs)
		}
		// The messages that were lost come back, with old reports, and go in the end.
		for range 60 {
			i.set(func(r *Report) { r.Received++ })
			advance(10 * time.Second)
			if view := w.view(); len(view.Reports) != 1 || view.Reports[0].Received != i.now.Received {
				t.Fatalf("got %+v, want the newest report alone", view)
			}
		}
		if n := len(w.messages()); n != 1 {
			t.Errorf("got %d messages, want those that were lost gone", n)
		}
	})
}

// An instance that is killed and restarted under its name removes the reports of its earlier runs, and no others.
func TestAPublisherRemovesReportsOfItsEarlierRuns(t *testing.T) {
	bubble(t, func(w *world) {
		for range 50 {
			i := w.start(w.control, Options{Instance: "a"})
			if n := len(w.messages()); n > 2 {
				t.Fatalf("got %d messages, want that of the run and at most one more", n)
			}
			advance(5 * time.Second)
			i.kill()
		}
		other := w.start(w.control, Options{Instance: "b"})
		defer other.stop()
		w.start(w.control, Options{Instance: "a"}).stop()
		if names := instances(w.view()); !slices.Equal(names, []string{"a", "b"}) || len(w.messages()) != 2 {
			t.Errorf("got %v in %d messages, want the last report of a, and b", names, len(w.messages()))
		}
	})
}

// latent is a queue whose puts take a moment: instances that start together do not see each other's.
type latent struct{ queue.Queue }

func (q latent) Sibling(suffix string) queue.Queue { return latent{q.Queue.Sibling(suffix)} }

func (q latent) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	time.Sleep(100 * time.Millisecond)
	return q.Queue.Enqueue(ctx, text, o)
}

// A view covers a thousand instances, even if they start together, and costs little again when they are few.
func TestAViewCoversAThousandInstances(t *testing.T) {
	bubble(t, func(w *world) {
		all := make([]*instance, 1000)
		for n := range all {
			all[n] = w.start(latent{w.control}, Options{Instance: fmt.Sprint(n), Create: true})
		}
		counted := new(metered.Meter)
		look := func(viewer *Viewer) {
			t.Helper()
			before := counted.Counts().Total().Requests
			w.viewer = viewer
			v := w.view()
			t.Logf("%d of %d instances, full %v, %d stale, in %d requests", len(v.Reports), len(all), v.Full, v.Stale, counted.Counts().Total().Requests-before)
			if len(v.Reports) != len(all) || v.Full {
				t.Errorf("got %d of %d instances, full %v, want all", len(v.Reports), len(all), v.Full)
			}
		}
		advance(80 * time.Second) // each has looked three times whether there is room
		viewer := must(NewViewer(counted.Wrap(w.control)))
		for range 12 {
			look(viewer)
			look(must(NewViewer(counted.Wrap(w.control))))
			advance(time.Minute)
		}
		if n := counted.Counts().Total().Requests / 24; n != 64 {
			t.Errorf("got %d requests for a view, want 64", n)
		}
		for _, i := range all[10:] {
			i.kill()
		}
		all = all[:10]
		advance(25 * time.Minute) // what was killed has expired, and the others are in the control queue again
		look(viewer)
		before := counted.Counts().Total().Requests
		for range 5 {
			advance(10 * time.Second)
			look(viewer)
		}
		if n := counted.Counts().Total().Requests - before; n != 5 {
			t.Errorf("got %d requests for five views of ten instances, want 5", n)
		}
		for _, i := range all {
			i.stop()
		}
	})
}

// Instances that started together do not all come back to the control queue at once when it is nearly empty.
func TestALargeFleetDoesNotComeBackToAnEmptyControlQueue(t *testing.T) {
	bubble(t, func(w *world) {
		var rest []*instance
		for n := range 100 {
			rest = append(rest, w.start(latent{w.control}, Options{Instance: fmt.Sprint(n), Create: true}))
		}
		advance(80 * time.Second)
		for _, i := range rest {
			if i.spot.level == 0 {
				i.stop()
			}
		}
		rest = slices.DeleteFunc(rest, func(i *instance) bool { return i.spot.level == 0 })
		defer func() {
			for _, i := range rest {
				i.stop()
			}
		}()
		advance(time.Minute)
		full, most := 0, 0
		for range 12 * 6 { // each replaces its message meanwhile
			advance(10 * time.Second)
			if v := w.view(); v.Full {
				full++
			}
			most = max(most, len(w.messages()))
		}
		if full > 0 || most > 10 {
			t.Errorf("got %d full views of 72, and %d reports in the control queue, want none and hardly any", full, most)
		}
	})
}

// Whatever the network does, viewers see each instance once, with a report that is not older than its failures explain.
func TestReportsSurviveAFaultyNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	for seed := range uint64(10) {
		bubble(t, func(w *world) {
			rates := faultqueue.Rates{Throttled: 0.05, Unavailable: 0.05, LostRequest: 0.05, LostResponse: 0.05, Duplicate: 0.05, Slow: 0.02, Late: 0.02}
			faulty := must(faultqueue.New(w.control, &faultqueue.Options{
				Seed: seed, Every: rates,
				Phases: []faultqueue.Phase{{From: 40 * time.Minute, For: time.Hour, Faults: map[faultqueue.Op]faultqueue.Rates{
					faultqueue.Enqueue: {}, faultqueue.Update: {}, faultqueue.Delete: {}}}},
			}))
			i := w.start(faulty, Options{Instance: "a"})
			missing := 0
			for n := range int64(40 * 6) {
				i.set(func(r *Report) { r.Received = n })
				advance(10 * time.Second)
				view := w.view()
				if len(view.Reports) > 1 {
					t.Fatalf("seed %d: got %+v, want the instance once", seed, view)
				}
				if len(view.Reports) == 0 {
					missing++
				}
			}
			if missing > 24 { // a quarter to a third of the requests fail, and three failures in a row are enough
				t.Errorf("seed %d: not seen in %d of 240 views", seed, missing)
			}
			advance(2 * time.Minute)
			for n := range int64(6) {
				i.set(func(r *Report) { r.Received = 1000 + n })
				advance(10 * time.Second)
			}
			if view := w.view(); len(view.Reports) != 1 || view.Reports[0].Received < 1004 {
				t.Errorf("seed %d, calm again: got %+v, want the newest report", seed, view)
			}
			i.stop()
			faulty.Wait()
			advance(20 * time.Minute)
			if all := w.messages(); len(all) != 0 {
				t.Errorf("seed %d, stopped: got %d messages, want none", seed, len(all))
			}
		})
	}
}

// unsteady is a queue whose updates do what fault says of the nth one, from 1.
type unsteady struct {
	queue.Queue
	updates int
	fault   func(n int) error
}

func (u *unsteady) Update(ctx context.Context, l queue.Lease, text string, v time.Duration) (queue.Lease, error) {
	u.updates++
	if err := u.fault(u.updates); err != nil {
		return l, err
	}
	return u.Queue.Update(ctx, l, text, v)
}

// An instance of which two reports in a row fail and the third is late is seen all the time.
func TestTwoFailedReportsAndALateOneAreBorne(t *testing.T) {
	bubble(t, func(w *world) {
		i := w.start(&unsteady{Queue: w.control, fault: func(n int) error {
			switch n % 4 {
			case 1, 2:
				return &queue.Error{Op: "update", Kind: queue.ErrUnavailable}
			case 3:
				time.Sleep(5 * time.Second)
			}
			return nil
		}}, Options{Instance: "a"})
		defer i.stop()
		unseen := 0
		for n := range int64(3600) {
			i.set(func(r *Report) { r.Received = n })
			advance(time.Second)
			if len(w.view().Reports) == 0 {
				unseen++
			}
		}
		if unseen > 0 {
			t.Errorf("not seen in %d of 3,600 seconds, want it seen in all", unseen)
		}
	})
}

// A missing control queue is reported and waited for, ever longer up to six intervals, or created with Create, also later.
func TestAMissingControlQueue(t *testing.T) {
	bubble(t, func(w *world) {
		q := w.account.Queue(queue.Name{Account: "acme", Queue: "elsewhere"})
		i := w.start(q, Options{Instance: "a"})
		advance(10 * time.Minute)
		errs := w.takeErrors()
		if n := w.meter.Counts().Total().Requests; n < 10 || n > 15 || len(errs) != int(n) {
			t.Errorf("got %d requests and %d errors in ten minutes, want 10…15 of both", n, len(errs))
		}
		if err := errs[0]; !errors.Is(err, queue.ErrQueueMissing) || !strings.Contains(err.Error(), "acme/elsewhere") || !strings.Contains(err.Error(), "report a ") {
			t.Errorf("got error %v, want the instance, the queue and that it is missing", err)
		}
		before := w.meter.Counts().Total().Requests
		i.stop()
		if n := w.meter.Counts().Total().Requests; n != before {
			t.Errorf("stopped: got %d more requests, want none", n-before)
		}

		i = w.start(q, Options{Create: true})
		defer i.stop()
		w.viewer = must(NewViewer(q))
		for range 2 {
			if view := w.view(); len(view.Reports) != 1 || w.takeErrors() != nil {
				t.Errorf("with Create: got %+v, want a report", view)
			}
			m := w.account.Queue(q.Name())
			if err := m.Drop(t.Context()); err != nil {
				t.Fatal(err)
			}
			advance(3 * time.Minute) // the service refuses a creation for a while
			w.takeErrors()
		}
		if view := w.view(); len(view.Reports) != 1 {
			t.Errorf("dropped: got %+v, want it created again", view)
		}
	})
}

// stuck is a queue whose requests end with their context.
type stuck struct {
	queue.Queue
}

func (s *stuck) Update(ctx context.Context, l queue.Lease, text string, v time.Duration) (queue.Lease, error) {
	<-ctx.Done()
	return l, ctx.Err()
}

// A stop does not wait for a control queue that hangs.
func TestAStopDoesNotWaitForAControlQueueThatHangs(t *testing.T) {
	bubble(t, func(w *world) {
		i := w.start(&stuck{Queue: w.control}, Options{})
		advance(time.Minute)
		begin := time.Now()
		i.stop()
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the stop took %v, want a second at most", took)
		}
		if errs := w.takeErrors(); errs != nil {
			t.Errorf("got %v, want nothing: the request was cut off by the stop", errs)
		}
	})
}

// An instance with more of something than viewers believe is seen with as much as they do.
func TestAnInstanceBeyondTheBoundsIsSeen(t *testing.T) {
	for name, set := range map[string]func(*Report){
		"handlers": func(r *Report) { r.Load.Slots, r.Load.Running, r.Load.Loops = 100_000, 90_000, 70_000 },
		"rates": func(r *Report) {
			r.Load.Arrival, r.Load.Intake, r.Load.Service = scaling.Known(3e5), scaling.Known(2e5), scaling.Known(2e5)
		},
		"handling time": func(r *Report) { r.Load.Handling = scaling.Known(8 * 24 * time.Hour) },
	} {
		bubble(t, func(w *world) {
			i := w.start(w.control, Options{Instance: "a"})
			defer i.stop()
			i.set(set)
			advance(10 * time.Second)
			if v := w.view(); len(v.Reports) != 1 || v.Ignored != 0 {
				t.Errorf("%s: got %d reports and %d ignored ones, want that of the instance", name, len(v.Reports), v.Ignored)
			}
		})
	}
}

// The options are checked before anything is sent.
func TestBadOptionsAreRefused(t *testing.T) {
	bubble(t, func(w *world) {
		report := func() Report { return Report{Queue: jobs, Phase: running} }
		for name, o := range map[string]Options{
			"queue of the jobs":  {Queue: w.account.Queue(jobs)},
			"nil *":              {Queue: (*mortal)(nil)},
			"give it a unit":     {Queue: w.control, Interval: 10},
			"outside 100ms…10m":  {Queue: w.control, Interval: time.Hour},
			"200 are allowed":    {Queue: w.control, Instance: strings.Repeat("x", 201)},
			"is not valid UTF-8": {Queue: w.control, Instance: "\xff"},
		} {
			if _, err := NewPublisher(jobs, report, w.failed, &o); err == nil || !strings.Contains(err.Error(), name) || !strings.HasPrefix(err.Error(), "beacon: ") {
				t.Errorf("got error %v, want %q", err, name)
			}
		}
		for _, o := range []Options{{Queue: w.control}, {Queue: w.control, Interval: MaxInterval, Instance: "a"}} {
			if _, err := NewPublisher(jobs, report, w.failed, &o); err != nil {
				t.Errorf("%+v: got error %v, want nil", o, err)
			}
		}
		if _, err := NewPublisher(jobs, nil, nil, nil); err == nil || !strings.Contains(err.Error(), "set Queue") || !strings.Contains(err.Error(), "pass both functions") {
			t.Errorf("without anything: got %v", err)
		}
		if _, err := NewViewer((*mortal)(nil)); err == nil || !strings.Contains(err.Error(), "pass the queue in which instances report") {
			t.Errorf("a viewer of a nil queue: got %v", err)
		}
		if _, err := NewFleet(); err == nil || !strings.Contains(err.Error(), "pass those that the instances take jobs from") {
			t.Errorf("a fleet without queues: got %v", err)
		}
		one, two := Options{}.withDefaults(), Options{}.withDefaults()
		if one.Instance != two.Instance || one.Instance == "" || checkInstance(one.Instance) != nil {
			t.Errorf("got instances %q and %q, want one for the process", one.Instance, two.Instance)
		}
		if w.meter.Counts().Total() != (metered.Tally{}) {
			t.Error("something was sent")
		}
	})
}

// A-03, N-09: a report has the processor time since the one before, as a share of what the process may use. It is unknown at
// first, over no time, and where the system does not tell.
func TestAReportHasCPUAndMemory(t *testing.T) {
	bubble(t, func(w *world) {
		var used time.Duration
		processors, known := 2.0, true
		p := must(NewPublisher(jobs, func() Report { return Report{Queue: jobs, Phase: running} }, w.failed, &Options{Queue: w.control}))
		p.spent = func() (time.Duration, float64, bool) { return used, processors, known }
		ctx, stop := context.WithCancel(w.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = p.Run(ctx) }()
		synctest.Wait()
		want := func(why string, share scaling.Optional[float64]) {
			t.Helper()
			reports := w.view().Reports
			if len(reports) != 1 || reports[0].CPU != share {
				t.Errorf("%s: got %+v, want the share %+v", why, reports, share)
			}
			if m := reports[0].Memory.Or(0); m < 1<<20 || m > 1<<40 {
				t.Errorf("%s: got %d bytes in use, want some MiB", why, m)
			}
		}
		step := func(spent time.Duration) {
			used += spent
			p.Changed()
			advance(10 * time.Second)
		}
		want("the first report", scaling.Optional[float64]{})
		step(0)
		want("idle", scaling.Known(0.0))
		step(5 * time.Second)
		want("5 s of 2 processors for 10 s", scaling.Known(0.25))
		processors = 0.5
		step(6 * time.Second)
		want("more than a quota allows", scaling.Known(1.0))
		known = false
		step(time.Second)
		want("where the system does not tell", scaling.Optional[float64]{})
		known = true
		step(-time.Second)
		want("the time has gone back", scaling.Optional[float64]{})
		stop()
		<-done
		want("right after the one before", scaling.Optional[float64]{})
	})
}

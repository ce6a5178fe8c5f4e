package paired_test

import (
	"flag"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/emulator"
)

var allJobs = flag.Int("jobs", 4_000, "how many jobs the test of outages sends")

// The outages of the primary region, in the order in which it has them, with what the secondary region has
// at the same time.
var outages = []struct {
	name             string
	lasts            time.Duration
	refuse           bool   // connections to the primary region are refused
	faults           string // of the primary region
	secondary        string // of the secondary region
	killTheReceivers bool   // in the middle of bringing messages home
}{
	{name: "none", lasts: time.Minute},
	{name: "kill", lasts: 2 * time.Minute, refuse: true},
	{name: "return", lasts: time.Minute},
	{name: "503", lasts: time.Minute, faults: "put:503"},
	{name: "calm", lasts: 30 * time.Second},
	{name: "slow", lasts: 90 * time.Second, faults: "*:delay=15s"},
	{name: "lost responses", lasts: time.Minute, faults: "*:drop@20%"},
	{name: "403", lasts: 40 * time.Second, faults: "put:403"},
	{name: "calm again", lasts: 30 * time.Second},
	{name: "another kill", lasts: time.Minute, refuse: true, secondary: "put:500@10% put:drop@1%"},
	{name: "return, and a kill while messages come home", lasts: 15 * time.Second, killTheReceivers: true},
	{name: "kill while messages come home", lasts: 30 * time.Second, refuse: true},
	{name: "return with faults on both sides", lasts: time.Minute, faults: "*:500@3% *:drop@3%", secondary: "*:500@3% *:drop@3%"},
	{name: "return for good", lasts: time.Minute},
}

// whatever happens to the primary region, the jobs that were accepted are those that
// are handled, and each that is handled twice was in doubt before.
func TestAcceptedIsHandledThroughOutages(t *testing.T) {
	if testing.Short() {
		t.Skip("plays hours")
	}
	jobs := *allJobs
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var script time.Duration
		for _, o := range outages {
			script += o.lasts
		}
		senders := w.startSenders(jobs, script)
		receivers := w.startReceivers()
		for _, o := range outages {
			w.west.refuses.Store(o.refuse)
			w.west.setFaults(t, o.faults)
			w.east.setFaults(t, o.secondary)
			if o.killTheReceivers {
				receivers.killWhileMoving(t)
				receivers = w.startReceivers()
			}
			time.Sleep(o.lasts)
			w.logState(o.name)
		}
		w.west.setFaults(t, "")
		w.east.setFaults(t, "")
		senders.Wait()
		w.waitUntilHandled(t, jobs)
		receivers.stop(t)
		w.check(t, jobs)
	})
}

// killWhileMoving kills the process when it has a copy under way.
func (r *receivers) killWhileMoving(t *testing.T) {
	t.Helper()
	for begun := r.syphon.State().Moved; r.syphon.State().Moved < begun+100; time.Sleep(10 * time.Millisecond) {
		if time.Since(r.world.begun) > time.Hour {
			t.Fatal("no message comes home")
		}
	}
	r.kill()
}

// waitUntilHandled waits until all jobs were handled and nothing is left anywhere.
func (w *world) waitUntilHandled(t *testing.T, jobs int) {
	t.Helper()
	for until := time.Now().Add(4 * time.Hour); ; time.Sleep(time.Second) {
		handled, left := w.handled(), w.left(t)
		if handled == jobs && left == 0 {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("after four hours %d of %d jobs were handled, and %d messages are left", handled, jobs, left)
		}
	}
}

// check compares what was accepted with what was handled.
func (w *world) check(t *testing.T, jobs int) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.jobs) != jobs {
		t.Errorf("got %d jobs, want the %d that were sent", len(w.jobs), jobs)
	}
	doubled, unexplained, reasons := 0, 0, make(map[doubt]int)
	for id := range jobs {
		j := w.jobs[id]
		if !j.accepted || j.handled == 0 {
			t.Fatalf("job %d: accepted %v, handled %d times; want once at least", id, j.accepted, j.handled)
		}
		if j.handled == 1 {
			continue
		}
		doubled += j.handled - 1
		if j.doubts == 0 {
			unexplained++
			t.Errorf("job %d was handled %d times, and nothing was in doubt", id, j.handled)
		}
		for d := doubt(1); d < allDoubts; d <<= 1 {
			if j.doubts&d != 0 {
				reasons[d]++
			}
		}
		if unexplained > 10 {
			t.Fatal("and more")
		}
	}
	if w.moved == 0 || doubled == 0 || reasons[sentAgain] == 0 {
		t.Errorf("got %d moved and %d doubled: the test shows nothing", w.moved, doubled)
	}
	t.Logf("%d jobs accepted and handled, %d diverted, %d brought home, %d handled twice:", jobs, w.diverted, w.moved, doubled)
	for d := doubt(1); d < allDoubts; d <<= 1 {
		t.Logf("  %6d %v", reasons[d], d)
	}
}

// setFaults replaces the faults of a region, on connections that are open too.
func (r *place) setFaults(t *testing.T, text string) {
	t.Helper()
	rules, err := emulator.ParseFaults(text)
	if err == nil {
		err = r.server.SetFaults(&emulator.Faults{Seed: 1, Rules: rules})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) logState(after string) {
	s := w.pair.State()
	w.t.Logf("%7s %-45s %-11v %6d handled, %6d diverted, %5d in backlog queues", time.Since(w.begun).Round(time.Second), after, s.Status, w.handled(), s.Diverted, w.east.depth(w.t))
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func jobID(n int) string { return fmt.Sprintf("job-%06d", n) }

package beacon

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/scaling"
)

// instances returns the instances in a view.
func instances(v View) (names []string) {
	for _, r := range v.Reports {
		names = append(names, r.Instance)
	}
	return names
}

// a viewer shows the instances that report, in order, and a killed one no more when three intervals have passed by the
// viewer's clock, although its message is still there.
func TestAViewerShowsTheInstancesThatReport(t *testing.T) {
	bubble(t, func(w *world) {
		var all []*instance
		for _, name := range []string{"c", "a", "b"} {
			all = append(all, w.start(w.control, Options{Instance: name}))
		}
		beat := func() {
			for _, i := range all {
				i.set(func(r *Report) { r.Received++ })
			}
			advance(10 * time.Second)
		}
		for range 10 {
			if v := w.view(); !slices.Equal(instances(v), []string{"a", "b", "c"}) || v.Full || v.Stale != 0 || v.Ignored != 0 {
				t.Fatalf("got %+v, want a, b and c", v)
			}
			beat()
		}
		w.view()
		all[0].kill()
		for range 3 { // 30 s
			beat()
			if v := w.view(); !slices.Equal(instances(v), []string{"a", "b", "c"}) {
				t.Errorf("got %v soon after the kill, want all", instances(v))
			}
		}
		beat()
		if v := w.view(); !slices.Equal(instances(v), []string{"a", "b"}) || v.Stale != 1 {
			t.Errorf("got %+v, want a and b, and c stale", v)
		}
		if n := len(w.messages()); n != 3 {
			t.Errorf("got %d messages, want that of the killed one still there", n)
		}
		// Another viewer, at its first look, knows by the service's time how old the report is beside the others.
		if v, err := must(NewViewer(w.control)).View(t.Context()); err != nil || !slices.Equal(instances(v), []string{"a", "b"}) {
			t.Errorf("first look: got %v, %v, want a and b", instances(v), err)
		}
		for range 60 {
			beat()
		}
		if v := w.view(); v.Stale != 0 || len(w.messages()) != 2 {
			t.Errorf("got %+v in %d messages, want that of the killed one gone after ten minutes", v, len(w.messages()))
		}
		all[1].stop()
		all[2].stop()
		if v := w.view(); !slices.Equal(instances(v), []string{"a", "b"}) || v.Reports[0].Phase != "stopped" {
			t.Errorf("stopped: got %+v, want the last reports", v)
		}
		advance(time.Minute)
		if v := w.view(); len(v.Reports) != 0 {
			t.Errorf("a minute later: got %+v, want none", v)
		}
	})
}

// sample is a report that an instance may have made.
func sample(name string) Report {
	return Report{Instance: name, Queue: jobs, Run: "r", Sequence: 1, Up: time.Minute, Put: time.Minute, Next: 10 * time.Second, Phase: running}
}

// Clocks of instances may say anything: only the sequence and the viewer's own clock count.
func TestClocksOfInstancesDoNotMatter(t *testing.T) {
	bubble(t, func(w *world) {
		ahead, behind := sample("ahead"), sample("behind")
		ahead.At, behind.At = time.Now().Add(48*time.Hour), time.Time{}
		w.put(ahead, time.Hour)
		w.put(behind, time.Hour)
		if v := w.view(); len(v.Reports) != 2 {
			t.Errorf("got %+v, want both", v)
		}
		advance(30 * time.Second)
		if v := w.view(); len(v.Reports) != 2 {
			t.Errorf("got %+v, want both for three intervals", v)
		}
		advance(time.Nanosecond)
		if v := w.view(); len(v.Reports) != 0 || v.Stale != 2 {
			t.Errorf("got %+v, want both stale", v)
		}
		ahead.Sequence, ahead.At = 2, ahead.At.Add(-72*time.Hour) // its clock was set back
		w.put(ahead, time.Hour)
		if v := w.view(); len(v.Reports) != 1 || v.Reports[0].Sequence != 2 {
			t.Errorf("got %+v, want the newer report", v)
		}
		ahead.Sequence = 1 // a message that its instance could not delete
		w.put(ahead, time.Hour)
		if v := w.view(); len(v.Reports) != 1 || v.Reports[0].Sequence != 2 {
			t.Errorf("got %+v, want the newer report still", v)
		}
	})
}

// A report that claims to be of the future, such as that of another program which puts a new message each time and says only
// how long it has run, hides no instance from a first look.
func TestAReportOfTheFutureHidesNobody(t *testing.T) {
	bubble(t, func(w *world) {
		for n := range 20 {
			w.put(sample(fmt.Sprintf("%02d", n)), time.Hour)
		}
		advance(20 * time.Second)
		future := sample("zz")
		future.Up, future.Put = 24*time.Hour, 0
		w.put(future, time.Hour)
		if v := w.view(); len(v.Reports) != 21 || v.Stale != 0 || len(w.messages()) != 21 {
			t.Errorf("got %d reports, %d stale, %d messages, want 21 reports and messages", len(v.Reports), v.Stale, len(w.messages()))
		}
	})
}

// The newest run of an instance counts; the last report of a run stays beside it.
func TestARestartReplacesTheRunBefore(t *testing.T) {
	bubble(t, func(w *world) {
		old := sample("a")
		old.Up = time.Hour
		old.Put = 50 * time.Minute
		w.put(old, time.Hour)
		advance(15 * time.Minute)
		next := sample("a")
		next.Run, next.Up, next.Put = "s", time.Second, 0
		w.put(next, time.Hour)
		if v := w.view(); len(v.Reports) != 1 || v.Reports[0].Run != "s" {
			t.Errorf("got %+v, want the new run alone", v)
		}
		old.Sequence, old.Phase, old.Next = 2, stopped, 0
		w.put(old, time.Hour)
		if v := w.view(); len(v.Reports) != 2 {
			t.Errorf("got %+v, want the last report too", v)
		}
	})
}

// Foreign messages, other versions and reports that no instance can have made are ignored.
func TestForeignMessagesAreIgnored(t *testing.T) {
	bubble(t, func(w *world) {
		w.put(sample("a"), time.Hour)
		text := w.messages()[0].Text
		for _, change := range [][2]string{
			{text, "hello"}, {text, "{}"}, {text, "null"}, {text, "[1]"}, {text, text[:20]}, {text, text + text},
			{`"beacon":1`, `"beacon":2`}, {`"instance":"a"`, `"instance":""`}, {`"instance":"a"`, `"instance":"` + strings.Repeat("x", 201) + `"`},
			{`"queue":"acme/jobs"`, `"queue":""`}, {`"sequence":1`, `"sequence":0`}, {`"next":"10s"`, `"next":"0s"`}, {`"next":"10s"`, `"next":"61m"`},
			{`"next":"10s"`, `"next":"-1s"`}, {`"next":"10s"`, `"next":10`}, {`"up":"1m0s"`, `"up":"59s"`}, {`"put":"1m0s"`, `"put":"-1s"`},
			{`"ended":0`, `"ended":-1`}, {`"delayed":0`, `"delayed":1e17`}, {`"slots":0`, `"slots":-1`}, {`"service":null`, `"service":-1`},
			{`"service":null`, `"service":1e300`}, {`"handling":null`, `"handling":"-1s"`}, {`"handling":null`, `"handling":"soon"`},
			{`"put"`, `"cpu":1.01,"put"`}, {`"put"`, `"cpu":-0.1,"put"`}, {`"put"`, `"cpu":"NaN","put"`}, {`"put"`, `"memory":-1,"put"`},
			{`"put"`, `"memory_limit":0,"put"`},
		} {
			changed := strings.Replace(text, change[0], change[1], 1)
			if changed == text {
				t.Fatalf("%q is not in %s", change[0], text)
			}
			if _, err := w.control.Enqueue(t.Context(), changed, nil); err != nil {
				t.Fatal(err)
			}
		}
		if v := w.view(); len(v.Reports) != 1 || v.Ignored != len(w.messages())-1 || v.Ignored != 29 {
			t.Errorf("got %+v of %d messages, want a alone", v, len(w.messages()))
		}
	})
}

// As many messages as a peek shows may not be all.
func TestAFullControlQueueIsSaid(t *testing.T) {
	bubble(t, func(w *world) {
		for n := range queue.MaxBatch + 3 {
			if v := w.view(); v.Full != (n >= queue.MaxBatch) || len(v.Reports) != min(n, queue.MaxBatch) {
				t.Fatalf("%d reports: got %d, full %v", n, len(v.Reports), v.Full)
			}
			w.put(sample(fmt.Sprintf("%02d", n)), time.Hour)
		}
	})
}

// One worker that crashes again and again does not fill the view: neither under one name, nor under another each time.
func TestACrashLoopHidesNobody(t *testing.T) {
	for name, named := range map[string]bool{"one name": true, "names": false} {
		for _, every := range []time.Duration{time.Second, 14 * time.Second} {
			t.Run(fmt.Sprint(name, " every ", every), func(t *testing.T) {
				bubble(t, func(w *world) {
					var healthy []string
					for n := range 8 {
						healthy = append(healthy, fmt.Sprint(n))
						i := w.start(w.control, Options{Instance: healthy[n], Create: true})
						defer i.stop()
					}
					counted := new(metered.Meter)
					w.viewer = must(NewViewer(counted.Wrap(w.control)))
					views, blind := 0, 0
					var next time.Time
					for begin, crash := time.Now(), time.Now(); time.Since(begin) < 20*time.Minute; advance(time.Second) {
						if !time.Now().Before(crash) {
							o := Options{Instance: "looper", Create: every == time.Second} // without, its reports stay in the one queue
							if !named {
								o.Instance = fmt.Sprint("looper ", w.started)
							}
							w.start(w.control, o).kill()
							crash = time.Now().Add(every)
						}
						if time.Now().Before(next) {
							continue
						}
						next = time.Now().Add(10 * time.Second)
						v := w.view()
						views++
						names := instances(v)
						if v.Full || !contains(names, healthy) {
							blind++
						}
					}
					t.Logf("%d of %d views blind, %d requests of the viewer, %d of the instances", blind, views,
						counted.Counts().Total().Requests, w.meter.Counts().Total().Requests)
					if blind > 0 {
						t.Errorf("%d of %d views were full or lacked a healthy instance", blind, views)
					}
				})
			})
		}
	}
}

// contains reports whether all of these are among the names.
func contains(names, all []string) bool {
	return !slices.ContainsFunc(all, func(s string) bool { return !slices.Contains(names, s) })
}

// A view that cannot be read is an error, not an empty one.
func TestAViewThatFailsIsAnError(t *testing.T) {
	bubble(t, func(w *world) {
		_, err := must(NewViewer(w.account.Queue(queue.Name{Account: "acme", Queue: "none"}))).View(t.Context())
		if !errors.Is(err, queue.ErrQueueMissing) || !strings.Contains(err.Error(), "acme/none") {
			t.Errorf("got %v, want that the queue is missing", err)
		}
	})
}

// What a viewer remembers is bounded.
func TestAViewerForgets(t *testing.T) {
	if testing.Short() {
		t.Skip("fills all that a viewer remembers")
	}
	bubble(t, func(w *world) {
		for n := range 2 * maxRemembered {
			r := sample(fmt.Sprint(n))
			v := w.viewer
			v.note(map[identity]sight{{r.Instance, r.Queue, r.Run}: {Report: r}}, time.Now(), new(int))
		}
		if n := len(w.viewer.runs); n > maxRemembered {
			t.Errorf("got %d runs remembered, want %d at most", n, maxRemembered)
		}
		time.Sleep(forgetAfter + 1)
		w.view()
		if n := len(w.viewer.runs); n != 0 {
			t.Errorf("got %d runs remembered after an hour, want none", n)
		}
	})
}

// The JSON form gives the report again, and is what the package's documentation says.
func TestTheJSONFormOfAReport(t *testing.T) {
	want := Report{
		Instance: "web-1", Queue: jobs, Run: "5f", Sequence: 7, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Up: 90 * time.Second, Put: time.Second,
		Next: 10 * time.Second, Phase: running, Paused: true, Shared: true, Received: 100, Ended: 90, Delayed: 3,
		Load: scaling.Load{Depth: 12, Loops: 1, Running: 6, Settling: 1, Slots: 64, BatchSize: 32, Service: scaling.Known(1.5), Handling: scaling.Known(time.Second)},
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	const form = `{"beacon":1,"instance":"web-1","queue":"acme/jobs","run":"5f","sequence":7,"at":"2026-01-02T03:04:05Z","phase":"running","paused":true,` +
		`"shared":true,"received":100,"ended":90,"delayed":3,"load":{"depth":12,"loops":1,"running":6,"settling":1,"slots":64,"batch_size":32,` +
		`"arrival":null,"intake":null,"service":1.5,"handling":"1s"},"up":"1m30s","put":"1s","next":"10s"}`
	if string(text) != form {
		t.Errorf("got  %s\nwant %s", text, form)
	}
	var got Report
	if err := json.Unmarshal(text, &got); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if err := driver.CheckText(form); err != nil {
		t.Error(err)
	}
	// Those of the last release above have neither CPU nor memory.
	want.CPU, want.Memory, want.MemoryLimit = scaling.Known(0.25), scaling.Known[int64](1<<28), scaling.Known[int64](1<<29)
	newer := strings.Replace(form, `},"up"`, `},"cpu":0.25,"memory":268435456,"memory_limit":536870912,"up"`, 1)
	if text, err := json.Marshal(want); err != nil || string(text) != newer {
		t.Errorf("got  %s, %v\nwant %s", text, err, newer)
	}
	if err := json.Unmarshal([]byte(newer), &got); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// FuzzReport: whatever a message says, decoding neither panics nor gives a report that no instance can have made, and what it accepts
// keeps its meaning.
func FuzzReport(f *testing.F) {
	for _, r := range []Report{sample("a"), {}} {
		text, _ := json.Marshal(r)
		f.Add(string(text))
	}
	f.Add(`{"beacon":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		var r Report
		if json.Unmarshal([]byte(text), &r) != nil {
			if r != (Report{}) {
				t.Errorf("an error, and %+v", r)
			}
			return
		}
		if err := r.check(); err != nil {
			t.Errorf("accepted %s: %v", text, err)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		var back Report
		if err := json.Unmarshal(again, &back); err != nil || back.Sequence != r.Sequence || back.Load != r.Load || back.Up != r.Up {
			t.Errorf("got %+v, %v from %s, want %+v", back, err, again, r)
		}
		var s scaling.Sample
		must(NewFleet(r.Queue)).Measure(&s, View{Reports: []Report{r, r}})
		if !(s.CPU.Or(0) >= 0 && s.CPU.Or(0) <= 1 && s.Memory.Or(0) >= 0 && s.Memory.Or(0) <= 1) {
			t.Errorf("got %+v from %s", s, text)
		}
		if rate := s.Service.Or(0); math.IsNaN(rate) || math.IsInf(rate, 0) || rate < 0 || s.InWork.Or(0) < 0 || s.Delayed.Or(0) < 0 || s.Handling.Or(0) < 0 || s.Slots.Or(0) < 0 {
			t.Errorf("got %+v from %s", s, text)
		}
	})
}

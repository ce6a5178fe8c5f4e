package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/beacon"
)

// report puts a report on a control queue, as a worker does.
func report(t *testing.T, control queue.Queue, r beacon.Report) {
	t.Helper()
	if r.Sequence == 0 {
		r.Sequence, r.Next, r.Run = 1, 10*time.Second, "run"
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := control.Enqueue(t.Context(), string(text), nil); err != nil {
		t.Fatal(err)
	}
}

// TestInstancesListsWhoReports: with what is known of each, and with what was left out.
func TestInstancesListsWhoReports(t *testing.T) {
	t.Parallel()
	v := on(startServer(t))
	name := createQueue(t, v)
	control := v.open(t, name)
	orders := queue.Name{Account: "shop", Queue: "orders"}
	report(t, control, beacon.Report{Instance: "web-1\x1b[2J\t\nx", Queue: orders, Phase: "running", At: time.Now().Add(-90*time.Minute - 10*time.Second), Load: scaling.Load{
		Running: 3, Slots: 8, Intake: scaling.Known(12.25), Service: scaling.Known(1234.0), Handling: scaling.Known(1234 * time.Millisecond),
	}, CPU: scaling.Known(0.924), Memory: scaling.Known[int64](300 << 20), MemoryLimit: scaling.Known[int64](1 << 30)})
	report(t, control, beacon.Report{Instance: "web-2", Queue: orders, Phase: "draining", Paused: true, At: time.Now().Add(time.Hour), Load: scaling.Load{
		Slots: 8, Intake: scaling.Known(0.26), Handling: scaling.Known(12500 * time.Microsecond),
	}})
	if _, err := control.Enqueue(t.Context(), "not a report", nil); err != nil {
		t.Fatal(err)
	}
	r := v.call(t, "instances", name)
	const want = `instance queue phase handlers in out handling cpu memory reported
web-1\x1b[2J x shop/orders running 3 of 8 12/s 1,234/s 1.2s 92% 300 MiB, 29% 1h30m ago
web-2 shop/orders draining, paused 0 of 8 0.3/s ? 13ms ? ? 0s ago
`
	if got := regexp.MustCompile(` +`).ReplaceAllString(r.out, " "); r.status != exitOK || got != want {
		t.Errorf("got status %d and\n%s\nwant\n%s", r.status, got, want)
	}
	if r.errs != "1 message left out that no worker of this version has written.\n" {
		t.Errorf("standard error: got %q, want that one message was left out", r.errs)
	}
	var reports []beacon.Report
	for line := range strings.Lines(v.ok(t, "instances", name, "-json")) {
		var one beacon.Report
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		reports = append(reports, one)
	}
	if len(reports) != 2 || reports[1].Instance != "web-2" || reports[0].Load.Service.Or(0) != 1234 {
		t.Errorf("got %+v, want both reports", reports)
	}
}

// TestInstancesSaysWhatALookDoesNotShow: nobody, or more than 32.
func TestInstancesSaysWhatALookDoesNotShow(t *testing.T) {
	t.Parallel()
	v := on(startServer(t))
	name := createQueue(t, v)
	if r := v.call(t, "instances", name); r.status != exitOK || r.out != "" || r.errs != "No worker reports in devstoreaccount1/"+name+"; those with a beacon do.\n" {
		t.Errorf("got %+v, want that no worker reports", r)
	}
	control := v.open(t, name)
	for n := range queue.MaxBatch {
		report(t, control, beacon.Report{Instance: string(rune('A' + n)), Queue: queue.Name{Queue: "orders"}, Phase: "running", At: time.Now()})
	}
	if r := v.call(t, "instances", name); r.status != exitOK || strings.Count(r.out, "\n") != 33 || r.errs != "A look shows 32 messages at most: there may be more workers.\n" {
		t.Errorf("got %+v, want 32 workers, and that there may be more", r)
	}
	v.fails(t, exitFailure, []string{"does not exist"}, "instances", name+"-none")
}

package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/examples/mosaic/roles"
	"github.com/millrace/millrace/queue"
)

// status reads figures until ok returns true.
func (s *site) status(ok func(Status) bool) (last Status) {
	s.t.Helper()
	s.events("/events", func(e event) bool {
		if e.kind != "status" {
			s.t.Fatalf("event: got %s, want status", e.kind)
		}
		if err := json.Unmarshal([]byte(e.text), &last); err != nil {
			s.t.Fatal(err)
		}
		return ok(last)
	})
	return last
}

func TestThePageShowsTheQueues(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for figures")
	}
	t.Parallel()
	w := setup(t)
	s := w.serve(nil)
	pass := w.store.hold()
	id := s.make(s.small()...)
	s.until(id, working)
	now := s.status(func(now Status) bool { return now.Queues[1].Depth > 0 })
	if len(now.Queues) != 4 || now.Queues[1].Name != "slicerequest" || now.Requests == 0 || !now.Answers {
		t.Errorf("status: got %+v", now)
	}
	pass(-1)
	s.until(id, done)
	s.status(func(now Status) bool { return now.Queues[1].Depth == 0 })
}

func TestAnOutageIsShown(t *testing.T) {
	if testing.Short() {
		t.Skip("plays an outage")
	}
	t.Parallel()
	w := setup(t)
	s := w.serve(func(o *Options) {
		o.Queue = func(name string) (queue.Queue, error) {
			if w.down.Load() {
				return nil, errors.New("dial /var/run/secret.sock: refused")
			}
			return w.queue(name), nil
		}
	})
	w.down.Store(true)
	s.status(func(now Status) bool { return !now.Answers })
	w.down.Store(false)
	s.status(func(now Status) bool { return now.Answers })
}

// A damaged slice, once it is redriven, completes the picture.
func TestADamagedSliceStopsAJobUntilItsMessageIsRedriven(t *testing.T) {
	if testing.Short() {
		t.Skip("makes several mosaics")
	}
	t.Parallel()
	w := setup(t)
	s := w.serve(nil)
	if r := s.post("/faults", field{name: "kind", value: "damage"}); r.status != http.StatusConflict {
		t.Errorf("damage without a job: got %d %s, want 409", r.status, r.body)
	}
	pass := w.store.hold()
	id := s.make(s.small()...)
	s.until(id, working)
	if r := s.post("/faults", field{name: "kind", value: "damage"}); r.status != http.StatusOK || r.json(t)["damaged"] != id {
		t.Fatalf("damage: got %d %s", r.status, r.body)
	}
	pass(-1)
	s.events("/jobs/"+id+"/events", func(e event) bool { return strings.Contains(e.Problem, "Redrive") })
	if now := s.status(func(now Status) bool { return now.Queues[1].Poison == 1 }); now.Queues[1].Depth != 0 {
		t.Errorf("status: got %+v", now)
	}
	r := s.post("/queues/slicerequest/redrive")
	if r.status != http.StatusOK || r.json(t)["redriven"] != 1.0 {
		t.Errorf("redrive: got %d %s, want 1 message", r.status, r.body)
	}
	if end := s.until(id, done); end.Problem != "" {
		t.Errorf("finished job: got the problem %q, want none", end.Problem)
	}
	s.status(func(now Status) bool { return now.Queues[1].Poison == 0 && now.Queues[1].Depth == 0 })
	if r := s.post("/queues/none/redrive"); r.status != http.StatusNotFound {
		t.Errorf("redrive of an unknown queue: got %d, want 404", r.status)
	}
	if r := s.post("/queues/" + roles.QueueNames()[0] + "/redrive"); r.status != http.StatusOK || r.json(t)["redriven"] != 0.0 {
		t.Errorf("redrive of an empty queue: got %d %s, want 0 messages", r.status, r.body)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	var busy bool
	var fail error
	s := setup(t).serve(func(o *Options) {
		o.Busy = func(on bool) error { busy = on; return fail }
		o.Processors = NewProcessors(1, nil, o.Logger)
	})
	fault := func(kind, on string, want int) reply {
		t.Helper()
		r := s.post("/faults", field{name: "kind", value: kind}, field{name: "on", value: on})
		if r.status != want {
			t.Errorf("%s: got %d %s, want %d", kind, r.status, r.body, want)
		}
		return r
	}
	fault("busy", "1", http.StatusOK)
	fault("slow", "1", http.StatusOK)
	if !busy || s.options.Processors.Slowed() != slowness {
		t.Errorf("faults: got busy %v and a delay of %v", busy, s.options.Processors.Slowed())
	}
	s.status(func(now Status) bool { return now.Busy && now.Slow && !now.Answers })
	fault("slow", "0", http.StatusOK)
	fault("busy", "0", http.StatusOK)
	s.status(func(now Status) bool { return !now.Busy && !now.Slow && now.Answers })
	fault("other", "1", http.StatusConflict)
	fail = errors.New("cannot use /etc/secret")
	if got := fault("busy", "1", http.StatusInternalServerError).failure(t); strings.Contains(got, "secret") {
		t.Errorf("error: got %q, which is for the log", got)
	}
	fail = nil
	if r := s.do(http.MethodPost, "/faults", strings.NewReader("kind=busy&on=0"), "Content-Type", "application/x-www-form-urlencoded", "Accept", "text/html"); r.status != http.StatusSeeOther || r.header.Get("Location") != "/" {
		t.Errorf("a form without a script: got %d %q, want a redirect to the page", r.status, r.header.Get("Location"))
	}
	if r := s.post("/processors/0/kill"); r.status != http.StatusConflict {
		t.Errorf("kill of a processor that does not run: got %d, want 409", r.status)
	}
	s.stop()
	s = s.w.serve(func(o *Options) { o.Busy = nil })
	fault("busy", "1", http.StatusConflict)
	if r := s.post("/processors/0/kill"); r.status != http.StatusConflict {
		t.Errorf("kill without processors: got %d, want 409", r.status)
	}
}

package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

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
	w := setup(t)
	s := w.serve(nil)
	pass := w.store.hold()
	id := s.make(s.small()...)
	s.until(id, working)
	now := s.status(func(now Status) bool { return now.Queues[1].Depth > 0 && now.Queues[1].Handlers > 0 })
	if len(now.Queues) != 4 || now.Queues[1].Name != "slicerequest" || now.Queues[1].Loops == 0 || now.Requests == 0 || now.Cost == "" || now.Price != "$0.004 for 10,000 requests" || !now.Server.Answers || !now.Server.Own {
		t.Errorf("status: got %+v", now)
	}
	pass(-1)
	s.until(id, done)
	s.status(func(now Status) bool { return now.Queues[1].Depth == 0 && now.Queues[1].Handlers == 0 })
}

func TestAnOutageIsShown(t *testing.T) {
	w := setup(t)
	down := make(chan bool, 1)
	down <- true
	s := w.serve(func(o *Options) {
		o.OwnServer = false
		o.Queue = func(name string) (queue.Queue, error) {
			broken := <-down
			down <- broken
			if broken {
				return nil, errors.New("dial /var/run/secret.sock: refused")
			}
			return w.queue(name), nil
		}
	})
	now := s.status(func(now Status) bool { return true })
	if now.Server.Answers || now.Server.Error != "dial …: refused" {
		t.Errorf("server: got %+v, want that it does not answer, without a path", now.Server)
	}
	<-down
	down <- false
	s.status(func(now Status) bool { return now.Server.Answers })
}

func TestPoisonIsSentBackAndItsJobStartsAgain(t *testing.T) {
	w := setup(t)
	s := w.serve(func(o *Options) { o.Own = &Controls{} })
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
	if end := s.until(id, failed); !strings.Contains(end.Error, "was damaged") {
		t.Errorf("error: got %q, want the reason", end.Error)
	}
	s.status(func(now Status) bool { return now.Queues[1].Poison == 1 })
	r := s.post("/queues/slicerequest/redrive")
	if r.status != http.StatusOK || r.json(t)["redriven"] != 1.0 || len(r.json(t)["restarted"].([]any)) != 1 {
		t.Errorf("redrive: got %d %s, want 1 message and the job", r.status, r.body)
	}
	s.until(id, done)
	s.status(func(now Status) bool { return now.Queues[1].Poison == 0 && now.Queues[1].Depth == 0 })
	if r := s.post("/queues/none/redrive"); r.status != http.StatusNotFound {
		t.Errorf("redrive of an unknown queue: got %d, want 404", r.status)
	}
	if r := s.post("/queues/" + roles.QueueNames()[0] + "/redrive"); r.status != http.StatusOK || r.json(t)["redriven"] != 0.0 {
		t.Errorf("redrive of an empty queue: got %d %s, want 0 messages", r.status, r.body)
	}
}

func TestFaults(t *testing.T) {
	var busy bool
	var delay time.Duration
	var fail error
	own := &Controls{
		Busy: func(on bool) error { busy = on; return fail },
		Slow: func(d time.Duration) { delay = d },
	}
	s := setup(t).serve(func(o *Options) { o.Own = own })
	fault := func(kind string, want int) reply {
		t.Helper()
		r := s.post("/faults", field{name: "kind", value: kind})
		if r.status != want {
			t.Errorf("%s: got %d %s, want %d", kind, r.status, r.body, want)
		}
		return r
	}
	fault("busy", http.StatusOK)
	fault("slow", http.StatusOK)
	if !busy || delay != slowness {
		t.Errorf("faults: got busy %v and a delay of %v", busy, delay)
	}
	s.status(func(now Status) bool { return now.Faults == Faults{true, true} && !now.Server.Answers })
	fault("none", http.StatusOK)
	if busy || delay != 0 {
		t.Errorf("no faults: got busy %v and a delay of %v", busy, delay)
	}
	s.status(func(now Status) bool { return now.Faults == Faults{} && now.Server.Answers })
	fault("other", http.StatusBadRequest)
	fail = errors.New("cannot use /etc/secret")
	if got := fault("busy", http.StatusInternalServerError).failure(t); strings.Contains(got, "secret") {
		t.Errorf("error: got %q, which is for the log", got)
	}
	if r := s.do(http.MethodPost, "/faults", strings.NewReader("kind=none"), "Content-Type", "application/x-www-form-urlencoded", "Accept", "text/html"); r.status != http.StatusSeeOther || r.header.Get("Location") != "/" {
		t.Errorf("a form without a script: got %d %q, want a redirect to the page", r.status, r.header.Get("Location"))
	}
	s.stop()

	s = s.w.serve(nil)
	fault("busy", http.StatusConflict)
	if r := s.post("/processors/0/kill"); r.status != http.StatusConflict {
		t.Errorf("kill without processors: got %d, want 409", r.status)
	}
}

func TestPrices(t *testing.T) {
	for _, c := range []struct {
		dollars  float64
		requests int64
		want     string
	}{{0, 1000, ""}, {0.004, 10_000, "$0.0040"}, {0.004, 225, "$0.000090"}, {0.004, 0, "$0.00"}, {1, 20_000, "$2.00"}, {0.004, 1, "$0.00000040"}} {
		if got := (Price{c.dollars}).of(c.requests); got != c.want {
			t.Errorf("%d requests at %v: got %q, want %q", c.requests, c.dollars, got, c.want)
		}
	}
	for price, want := range map[float64]string{0: "no price was given", 0.004: "$0.004 for 10,000 requests", 1: "$1 for 10,000 requests"} {
		if got := (Price{price}).String(); got != want {
			t.Errorf("%v: got %q, want %q", price, got, want)
		}
	}
}

// Without a script, the figures and what can be done about them are on the page itself.
func TestPagesHaveTheFiguresOfNow(t *testing.T) {
	for _, own := range []bool{true, false} { // the figures of a server elsewhere are read when somebody asks
		w := setup(t)
		p, stop := children(t, 1, "works")
		s := w.serve(func(o *Options) {
			o.OwnServer = own
			o.Own = &Controls{Processors: p, Slow: p.Slow, Busy: func(bool) error { return nil }}
		})
		pass := w.store.hold()
		id := s.make(s.small()...)
		s.status(func(now Status) bool {
			return now.Queues[1].Handlers > 0 && now.Processors[0].State == "running"
		})
		for _, path := range []string{"/?now=1", "/jobs/" + id + "?now=1"} {
			page := s.pageOf(path)
			has(t, path, page, `class="queue busy" data-queue="slicerequest"`, " handlers, ", "Processor 1</b><span class=\"state\">process ", `action="/processors/0/kill"`, `href="?now=1#queues-title"`, `<input type="hidden" name="on" value="1"><button class="slim" aria-pressed="false">Answer 503`)
			if strings.Contains(page, "no figures yet") {
				t.Errorf("%s: got no figures", path)
			}
		}
		for _, on := range []string{"1", "0"} {
			if r := s.post("/faults", field{name: "kind", value: "slow"}, field{name: "on", value: on}); r.status != http.StatusOK {
				t.Fatalf("slow %s: got %d %s", on, r.status, r.body)
			}
			s.status(func(now Status) bool { return now.Faults.Slow == (on == "1") })
			off := map[string]string{"1": "0", "0": "1"}[on]
			has(t, "a switch", s.pageOf("/?now=1"), `name="kind" value="slow"><input type="hidden" name="on" value="`+off+`">`)
		}
		pass(-1)
		s.until(id, done)
		stop()
	}
}

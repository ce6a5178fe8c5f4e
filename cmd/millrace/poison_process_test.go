//go:build unix

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// watchedServer is a server that signals a process at one of its requests.
type watchedServer struct {
	location string

	mu     sync.Mutex
	left   int       // requests until the signal; guarded by mu
	after  bool      // the request is served first; guarded by mu
	signal os.Signal // guarded by mu
	victim *exec.Cmd // guarded by mu; nil for none
}

func newWatchedServer(t *testing.T) *watchedServer {
	t.Helper()
	s := new(watchedServer)
	server := must(emulator.New(nil, nil))
	held := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now, after := s.due()
		if now != nil && !after {
			now()
		}
		server.ServeHTTP(w, r)
		if now != nil && after {
			now()
		}
	}))
	t.Cleanup(held.Close)
	s.location = connectionString(held.URL+"/devstoreaccount1", emulator.DevelopmentAccount, emulator.DevelopmentKey)
	return s
}

// due counts a request, and returns what signals the process if it is time.
func (s *watchedServer) due() (now func(), after bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left--
	if s.left != 0 || s.victim == nil {
		return nil, false
	}
	process, signal := s.victim.Process, s.signal
	return func() { _ = process.Signal(signal) }, s.after
}

// run runs the program, and signals it at the nth request; 0 for never.
func (s *watchedServer) run(t *testing.T, signal os.Signal, n int, after bool, args ...string) (status int, out, errs string) {
	t.Helper()
	p := prepare(t.Context(), args...)
	p.Env = append(p.Env, accountVariable+"="+s.location)
	var o, e bytes.Buffer
	p.Stdout, p.Stderr = &o, &e
	s.mu.Lock() // a request waits until the process is known
	s.left, s.signal, s.after, s.victim = n, signal, after, p
	err := p.Start()
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	_ = p.Wait() // its status tells
	return p.ProcessState.ExitCode(), o.String(), e.String()
}

// jobsIn takes all messages out of a queue and counts their jobs.
func jobsIn(t *testing.T, q queue.Queue) map[string]int {
	t.Helper()
	ids := make(map[string]int)
	for {
		batch, err := q.Dequeue(t.Context(), queue.MaxBatch, queue.MaxVisibility)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			return ids
		}
		for _, m := range batch {
			h, _, _, err := envelope.Open(m.Text, codec.Envelope)
			if err != nil || h.Attempts != 0 {
				t.Fatalf("got %q, %v; want a job without attempts", m.Text, err)
			}
			ids[h.ID]++
		}
	}
}

// TestAKilledRedriveProcessLosesNothing: the program is killed many times at any request, then
// runs to its end. Every job is back, and no more are there twice than were killed.
func TestAKilledRedriveProcessLosesNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes and kills them")
	}
	const kills, parallel = 12, 2
	s := newWatchedServer(t)
	v := on(s.location)
	name := createQueue(t, v)
	q := v.open(t, name)
	const jobs = 250
	for n := range jobs {
		bury(t, q, n, poison.ReasonAttempts, fmt.Errorf("no stock for order %d", n), "")
	}
	args := []string{"poison", "redrive", name, "-lease", "2s", "-parallel", fmt.Sprint(parallel), "-reason", "attempts"}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test repeats itself
	killed := 0
	for range kills {
		if status, _, _ := s.run(t, syscall.SIGKILL, 1+random.IntN(60), random.IntN(2) == 0, args...); status == -1 {
			killed++
		}
	}
	for left := int64(1); left > 0; { // until what the dead had in hand is visible again
		if status, out, errs := s.run(t, nil, 0, false, args...); status != exitOK {
			t.Fatalf("got status %d, %q and %q, want 0", status, out, errs)
		}
		p, err := v.open(t, name+"-poison").Properties(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		left = p.Depth
	}
	ids, twice := jobsIn(t, q), 0
	for _, times := range ids {
		twice += times - 1
	}
	if len(ids) != jobs || twice > killed*parallel || killed < kills/2 {
		t.Errorf("got %d jobs, %d of them twice after %d kills; want %d, and at most %d", len(ids), twice, killed, jobs, killed*parallel)
	}
}

// TestAnInterruptedRedriveSaysHowFarItGot: a signal lets what was sent be deleted, gives the rest
// back and counts.
func TestAnInterruptedRedriveSaysHowFarItGot(t *testing.T) {
	t.Parallel()
	s := newWatchedServer(t)
	v := on(s.location)
	name := createQueue(t, v)
	q := v.open(t, name)
	const jobs = 100
	for n := range jobs {
		bury(t, q, n, poison.ReasonAttempts, nil, "")
	}
	status, out, errs := s.run(t, syscall.SIGINT, 60, false, "poison", "redrive", name)
	var redriven int
	if _, err := fmt.Sscanf(errs, "millrace: poison redrive: interrupted; %d messages redriven", &redriven); err != nil || status != exitInterrupted ||
		!strings.HasSuffix(errs, "nothing is lost, run it again for the rest\n") || !strings.HasPrefix(out, fmt.Sprintf("%d messages of", redriven)) {
		t.Fatalf("got status %d, %q and %q, want the interruption and how far it came", status, out, errs)
	}
	left := strings.Count(v.ok(t, "poison", "list", name, "-beyond", "-json"), "\n")
	if ids := jobsIn(t, q); len(ids) != redriven || left != jobs-redriven || redriven == 0 {
		t.Errorf("got %d jobs back and %d left at once, want %d and the rest", len(ids), left, redriven)
	}
}

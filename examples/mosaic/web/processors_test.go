package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// asChild makes this test binary a processor that a server starts.
const asChild = "MOSAIC_WEB_TEST_CHILD"

// child reports what it is told, as a processor does.
func child(kind string) {
	if kind == "fails" {
		os.Exit(3)
	}
	say := func(r Report) {
		line, _ := json.Marshal(r)
		fmt.Println(string(line))
	}
	fmt.Println("not a report")
	say(Report{Loops: 1})
	for kind == "stopped" {
		time.Sleep(time.Hour) // until it is killed; like a process after SIGSTOP, it reads nothing
	}
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		var o Order
		if json.Unmarshal(orders.Bytes(), &o) == nil {
			say(Report{Handled: int64(o.Delay / time.Second), Loops: 1})
		}
	}
	for kind == "deaf" {
		time.Sleep(time.Hour) // until it is killed
	}
}

// children starts processors. The function it returns stops them, and waits.
func children(t *testing.T, n int, kind string) (*Processors, func()) {
	return childrenWhen(t, n, kind, func() {})
}

// childrenWhen starts processors, each process after a call of ready.
func childrenWhen(t *testing.T, n int, kind string, ready func()) (*Processors, func()) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	p := NewProcessors(n, func() *exec.Cmd {
		ready()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asChild+"="+kind)
		return cmd
	}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	stop := func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		for _, one := range p.Status() {
			if one.State != "stopped" || one.PID != 0 {
				t.Errorf("at the end: got %+v, want it stopped", one)
			}
		}
	}
	return p, stop
}

func TestAKilledProcessorIsStartedAgain(t *testing.T) {
	// The third process is that after the kill. It waits for the test, which must see that there is none.
	var started atomic.Int32
	third := make(chan struct{})
	p, stop := childrenWhen(t, 2, "works", func() {
		if started.Add(1) > 2 {
			<-third
		}
	})
	defer stop()
	letGo := sync.OnceFunc(func() { close(third) })
	defer letGo()
	s := setup(t).serve(func(o *Options) { o.Own = &Controls{Processors: p, Slow: p.Slow} })
	all := func(state string, restarts int) func(Status) bool {
		return func(now Status) bool {
			return now.Processors[0].State == state && now.Processors[0].Restarts == restarts && now.Processors[1].State == "running" && now.Processors[1].Restarts == 0
		}
	}
	before := s.status(all("running", 0)).Processors[0]
	if r := s.post("/faults", field{name: "kind", value: "slow"}); r.status != http.StatusOK {
		t.Fatalf("slow: got %d %s", r.status, r.body)
	}
	seconds := int64(slowness / time.Second)
	s.status(func(now Status) bool {
		return now.Processors[0].Handled == seconds && now.Processors[1].Handled == seconds
	})
	r := s.post("/processors/0/kill")
	if r.status != http.StatusOK || r.json(t)["killed"] != float64(before.PID) {
		t.Errorf("kill: got %d %s, want process %d", r.status, r.body, before.PID)
	}
	s.status(all("restarting", 1))
	if r := s.post("/processors/0/kill"); r.status != http.StatusConflict {
		t.Errorf("kill of one that does not run: got %d, want 409", r.status)
	}
	letGo()
	after := s.status(all("running", 1)).Processors[0]
	if after.PID == before.PID {
		t.Errorf("process: got %d again, want another", after.PID)
	}
	// It is told how slow it has to be, and its count goes on.
	s.status(func(now Status) bool { return now.Processors[0].Handled == 2*seconds })
	for _, id := range []string{"2", "-1", "x"} {
		if r := s.post("/processors/" + id + "/kill"); r.status != http.StatusNotFound && r.status != http.StatusConflict {
			t.Errorf("kill of processor %s: got %d, want it refused", id, r.status)
		}
	}
}

func TestAProcessorThatDoesNotStopIsKilled(t *testing.T) {
	p, stop := children(t, 1, "deaf")
	s := setup(t).serve(func(o *Options) { o.Own = &Controls{Processors: p} })
	s.status(func(now Status) bool { return now.Processors[0].State == "running" })
	stop()
}

func TestProcessorsThatFailAreTriedAgain(t *testing.T) {
	p, stop := children(t, 1, "fails")
	defer stop()
	s := setup(t).serve(func(o *Options) { o.Own = &Controls{Processors: p} })
	s.status(func(now Status) bool { return now.Processors[0].Restarts >= 2 })
}

// A process after SIGSTOP reads nothing, so the pipe to it fills up. Nobody waits for it.
func TestOrdersToAProcessThatDoesNotReadBlockNobody(t *testing.T) {
	p, stop := children(t, 1, "stopped")
	s := setup(t).serve(func(o *Options) { o.Own = &Controls{Processors: p, Slow: p.Slow} })
	before := s.status(func(now Status) bool { return now.Processors[0].State == "running" }).Processors[0]
	for i := range 10_000 { // more than fit into a pipe
		p.Slow(time.Duration(i) * time.Second)
	}
	if pid, ok := p.Kill(0); !ok || pid != before.PID {
		t.Errorf("kill: got %d, %v, want process %d", pid, ok, before.PID)
	}
	s.status(func(now Status) bool { return now.Processors[0].Restarts == 1 && now.Processors[0].State == "running" })
	stop()
}

// The same with a pipe that takes nothing at all, so that it is certain that an order is on its way.
func TestAnOrderThatIsOnItsWayBlocksNobody(t *testing.T) {
	p := NewProcessors(1, nil, slog.New(slog.DiscardHandler))
	read, write := io.Pipe()
	ended := make(chan struct{})
	told := make(chan struct{})
	go func() {
		defer close(told)
		p.tell(p.all[0], write, ended)
	}()
	p.Slow(time.Second)
	first := make([]byte, 1)
	if _, err := read.Read(first); err != nil { // the rest of the order waits for a reader now
		t.Fatal(err)
	}
	p.Slow(2 * time.Second)
	p.Slow(3 * time.Second)
	if got := p.Status(); len(got) != 1 {
		t.Errorf("status: got %d processors, want 1", len(got))
	}
	lines := bufio.NewScanner(io.MultiReader(bytes.NewReader(first), read))
	for _, want := range []time.Duration{time.Second, 3 * time.Second} { // what was replaced is not sent
		var o Order
		if !lines.Scan() || json.Unmarshal(lines.Bytes(), &o) != nil || o.Delay != want {
			t.Errorf("order: got %q, want %v", lines.Bytes(), want)
		}
	}
	p.Slow(4 * time.Second)
	_ = write.Close() // as the end of a process does
	close(ended)
	<-told
}

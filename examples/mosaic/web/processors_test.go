package web

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"
)

// asChild makes this test binary a processor that a server starts.
const asChild = "MOSAIC_WEB_TEST_CHILD"

// child writes a line for each slice, as a processor does, and ends with its input.
func child(kind string) {
	if kind == "fails" {
		os.Exit(3)
	}
	fmt.Println("processor: queues at …")
	fmt.Println("request 1234: slice 1 of 2 is rendered")
	_, _ = io.Copy(io.Discard, bufio.NewReader(os.Stdin)) // ends with the input
	for kind == "deaf" {
		time.Sleep(time.Hour) // until it is killed
	}
}

// children starts processors. The function it returns stops them, and waits.
func children(t *testing.T, n int, kind string) (p *Processors, slow func() time.Duration, stop func()) {
	t.Helper()
	last := make(chan time.Duration, 100)
	p = NewProcessors(n, func(ctx context.Context, slow time.Duration) *exec.Cmd {
		last <- slow
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(os.Environ(), asChild+"="+kind)
		return cmd
	}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	return p, func() time.Duration { return <-last }, func() {
		t.Helper()
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		for _, one := range p.Status() {
			if one.PID != 0 {
				t.Errorf("at the end: got %+v, want it stopped", one)
			}
		}
	}
}

// runs waits until processor 0 has handled n slices, and returns it.
func runs(t *testing.T, p *Processors, n int64) ProcessorStatus {
	t.Helper()
	for {
		if now := p.Status()[0]; now.PID > 0 && now.Handled >= n {
			return now
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("the test was stopped")
		}
	}
}

func TestAKilledProcessorIsStartedAgain(t *testing.T) {
	t.Parallel()
	p, _, stop := children(t, 2, "works")
	before := runs(t, p, 1)
	if pid, ok := p.Kill(0); !ok || pid != before.PID {
		t.Errorf("kill: got %d, %v; want process %d", pid, ok, before.PID)
	}
	if after := runs(t, p, 2); after.PID == before.PID {
		t.Errorf("after the kill: got %+v, want another process", after)
	}
	stop()
	if _, ok := p.Kill(0); ok {
		t.Error("kill of a processor that was stopped: got true, want false")
	}
}

func TestSlowProcessorsAreStartedAgain(t *testing.T) {
	t.Parallel()
	p, slow, stop := children(t, 1, "works")
	runs(t, p, 1)
	if got := slow(); got != 0 {
		t.Errorf("first start: got -slow %v, want 0", got)
	}
	p.Slow(3 * time.Second)
	if got := slow(); got != 3*time.Second || p.Slowed() != got {
		t.Errorf("second start: got -slow %v, want 3s", got)
	}
	stop()
}

func TestAProcessorThatDoesNotStopIsKilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits five seconds")
	}
	p, _, stop := children(t, 1, "deaf")
	runs(t, p, 1)
	stop()
}

func TestProcessorsThatFailAreTriedAgain(t *testing.T) {
	t.Parallel()
	_, slow, stop := children(t, 1, "fails")
	slow()
	slow()
	stop()
}

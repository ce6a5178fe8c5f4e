package processes

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/azuritetest"
)

// An instance has ended while no agent ran, a process that it has started holds the lock still, and its id was used again by somebody else: that
// one is left alone, and the instance is started again.
func TestAnIdThatWasUsedAgainIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.open()
	w.scale(p, 2)
	kids := w.next(2)
	kids[1].order("spawn")
	spawned(t, kids[1])
	if err := p.Close(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	kids[1].end(0)
	innocent := exec.CommandContext(t.Context(), "sleep", "1000")
	innocent.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // even a process group of that id
	if err := innocent.Start(); err != nil {
		t.Fatal(err)
	}
	record, err := os.ReadFile(w.folder + "/" + lockName(1))
	if err != nil {
		t.Fatal(err)
	}
	_, start, _ := strings.Cut(string(record), " ")
	if err := os.WriteFile(w.folder+"/"+lockName(1), fmt.Appendf(nil, "%d %s", innocent.Process.Pid, start), 0o600); err != nil {
		t.Fatal(err)
	}
	p = w.open(func(o *Options) { o.Grace = time.Millisecond })
	if got, want := p.State(), (State{Wanted: 1, Running: 1, Adopted: 1}); got != want {
		t.Errorf("State: got %+v, want %+v", got, want)
	}
	w.scale(p, 2)
	if again := w.one(); again.number != 1 {
		t.Errorf("number: got %d, want 1 again", again.number)
	}
	w.scale(p, 0)
	w.until(p, "all have ended", func(s State) bool { return s.Draining == 0 })
	azuritetest.Until(t, "the killed ones are gone", func() bool { return !kids[2].alive() })
	if err := innocent.Process.Signal(syscall.SIGCONT); err != nil {
		t.Errorf("the process that has the id by chance: got %v, want it alive", err)
	}
	if err := innocent.Process.Kill(); err != nil {
		t.Error(err)
	}
	innocent.Wait() // it was killed
}

// A program that has closed descriptor 3 holds no lock. That is reported, and the next agent finds it by its start time.
func TestAProgramThatClosesItsLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent()
	a.has(0, 0, 0)
	a.scale(2)
	a.has(2, 0, 0)
	kids := w.next(2)
	for _, k := range kids {
		k.order("close")
		if got := k.hears(); got != "closed" {
			t.Fatalf("got %q, want closed", got)
		}
	}
	a.signal(syscall.SIGKILL)
	p := w.open(func(o *Options) { o.Grace = time.Millisecond })
	if got, want := p.State(), (State{Wanted: 2, Running: 2, Adopted: 2}); got != want {
		t.Errorf("State: got %+v, want %+v", got, want)
	}
	w.until(p, "it is reported", func(State) bool { return strings.Contains(w.log.String(), "descriptor 3") })
	w.scale(p, 0)
	w.until(p, "they have ended", func(s State) bool { return s.Draining == 0 })
	for _, k := range kids {
		k.waitGone()
	}
	w.noneBegan()
	if n := strings.Count(w.log.String(), "descriptor 3"); n != 1 {
		t.Errorf("got %d lines about descriptor 3 for two instances of one program, want 1", n)
	}
}

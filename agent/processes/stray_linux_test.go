package processes

import (
	"fmt"
	"os"
	"os/exec"
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
	if err := os.WriteFile(w.folder+"/"+lockName(1), fmt.Appendln(nil, innocent.Process.Pid), 0o600); err != nil {
		t.Fatal(err)
	}
	p = w.open(func(o *Options) { o.Grace = time.Millisecond })
	if got, want := p.State(), (State{Wanted: 2, Running: 2, Adopted: 1}); got != want {
		t.Errorf("State: got %+v, want %+v", got, want)
	}
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

//go:build unix

package processes

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/azuritetest"
)

// spawned returns the process id that an instance says.
func spawned(t *testing.T, k *kid) (pid int) {
	t.Helper()
	if _, err := fmt.Sscanf(k.hears(), "spawned %d", &pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
	return pid
}

// dead waits until a process that is no child of this one has ended. Who has it as a child may leave it a zombie.
func (w *world) dead(pid int) {
	w.t.Helper()
	azuritetest.Until(w.t, "the process has ended", func() bool {
		if syscall.Kill(pid, 0) == syscall.ESRCH {
			return true
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(stat), ") Z ")
	})
}

// An instance that ends by itself, however, is started again with its number, counted and reported; and nothing of it is left.
func TestAnInstanceThatEndsIsStartedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.open()
	w.scale(p, 2)
	kids := w.next(2)
	kids[2].order("spawn")
	child := spawned(t, kids[2])
	kids[2].order("print one|two|three")
	kids[2].hears()
	kids[2].end(7)
	again := w.one()
	w.dead(child)
	w.reaped(kids[2].pid)
	if again.number != 2 || !kids[1].alive() {
		t.Errorf("number: got %d, want 2 again", again.number)
	}
	if err := syscall.Kill(again.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if third := w.one(); third.number != 2 {
		t.Errorf("number: got %d, want 2 again", third.number)
	}
	w.until(p, "both are counted", func(s State) bool { return s == State{Wanted: 2, Running: 2, Restarts: 2} })
	const message = "instance has ended by itself and is started again"
	how, output := w.log.all(message, "how"), w.log.all(message, "output")
	if len(how) != 2 || how[0].String() != "exit status 7" || how[1].String() != "killed by signal killed" {
		t.Errorf("how: got %v, want exit status 7 and a signal", how)
	}
	if len(output) != 2 || output[0].String() != "one\ntwo\nthree" || output[1].String() != "" {
		t.Errorf("output: got %q, want that of each process", output)
	}
}

// One that ends at once again and again does not spin: the waits double up to the longest. One that has worked long begins anew.
func TestRestartsDoNotSpin(t *testing.T) {
	t.Parallel()
	const message = "instance has ended by itself and is started again"
	run := func(steady time.Duration) (waits []time.Duration) {
		w := newWorld(t)
		o := w.options()
		o.Command = []string{"sh", "-c", "echo the door is locked; exit 1"}
		p, err := open(o, timing{look: time.Millisecond, maxLook: time.Millisecond, restart: time.Millisecond, maxRestart: 16 * time.Millisecond, steady: steady, output: guard}, true)
		if err != nil {
			t.Fatal(err)
		}
		w.scale(p, 1)
		w.until(p, "it has been started seven times", func(s State) bool { return s.Restarts >= 7 })
		if err := p.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, one := range w.log.all(message, "in") {
			waits = append(waits, one.Duration())
		}
		for _, one := range w.log.all(message, "output") {
			if one.String() != "the door is locked" {
				t.Errorf("output: got %q", one)
			}
		}
		return waits
	}
	for i, got := range run(time.Hour) {
		want := min(time.Millisecond<<i, 16*time.Millisecond)
		if got < want*3/4-time.Millisecond/2 || got > want*5/4+time.Millisecond/2 {
			t.Errorf("wait %d: got %v, want %v ± 25 %%", i+1, got, want)
		}
	}
	for i, got := range run(0) {
		if got > 2*time.Millisecond {
			t.Errorf("wait %d of an instance that works long enough: got %v, want the first again", i+1, got)
		}
	}
}

// A program that is gone is looked for again with growing waits; that fails Scale and keeps what is wanted.
func TestAProgramThatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	program := filepath.Join(t.TempDir(), "program")
	if err := os.Symlink(os.Args[0], program); err != nil {
		t.Fatal(err)
	}
	p := w.open(func(o *Options) { o.Command = []string{program} })
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	w.scale(p, 1)
	w.until(p, "it has been tried three times", func(s State) bool { return s.Restarts >= 3 })
	if log := w.log.String(); !strings.Contains(log, "exit status 127") || !strings.Contains(log, program) {
		t.Errorf("log: got %s, want the status of a program that is not there, and its path", log)
	}
	if err := os.Symlink(os.Args[0], program); err != nil {
		t.Fatal(err)
	}
	w.one()
	w.until(p, "it runs", func(s State) bool { return s.Running == 1 })
}

// Of surplus instances, those go first that have no process.
func TestInstancesWithoutAProcessGoFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.options()
	slow := quick
	slow.restart, slow.maxRestart = time.Hour, time.Hour
	p, err := open(o, slow, true)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	w.scale(p, 1)
	one := w.one()
	w.scale(p, 2)
	two := w.one()
	one.end(0)
	w.until(p, "one waits", func(s State) bool { return s.Waiting == 1 })
	w.scale(p, 1)
	if got, want := p.State(), (State{Wanted: 1, Running: 1, Restarts: 1}); got != want {
		t.Errorf("State: got %+v, want %+v", got, want)
	}
	if !two.alive() || len(two.said) > 0 {
		t.Error("the instance that works was told to end, want the one that does not")
	}
}

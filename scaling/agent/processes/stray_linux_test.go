package processes

import (
	"errors"
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
	if err := p.Close(); err != nil {
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

// If a cleaner of /tmp deletes the lock of the agent, or the file of an instance, no second agent
// gets in, and the next one finds all instances.
func TestFilesThatAreDeletedAreMadeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.open()
	w.scale(p, 2)
	w.next(2)
	for _, name := range []string{agentLock, graceName, lockName(1)} {
		path := w.folder + "/" + name
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		azuritetest.Until(t, name+" is made again", func() bool { _, err := os.Stat(path); return err == nil })
	}
	if second, err := open(w.options(), quick, true); !errors.Is(err, ErrInUse) {
		second.Close()
		t.Errorf("a second agent: got %v, want ErrInUse", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := Left(w.folder); n != 2 || err != nil {
		t.Errorf("left: got %d instances, %v; want 2", n, err)
	}
}

// An unknown process that holds the lock of an instance may be that instance, which is not started
// a second time.
func TestAnInstanceWithoutARecordIsNotStartedTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.open()
	w.scale(p, 1)
	one := w.one()
	path := w.folder + "/" + lockName(1)
	if err := errors.Join(p.Close(), os.Truncate(path, 0)); err != nil {
		t.Fatal(err)
	}
	hasty := quick
	hasty.record = time.Millisecond
	p, err := open(w.options(), hasty, true)
	if err == nil {
		t.Fatalf("got %+v, want an error", p.State())
	}
	if !strings.Contains(err.Error(), path) {
		t.Errorf("got the error %v, want one with %s", err, path)
	}
	one.end(0)
	p = w.open()
	if got, want := p.State(), (State{}); got != want {
		t.Errorf("State: got %+v, want %+v", got, want)
	}
}

func init() { tasks["starved"] = playStarved }

func playStarved() {
	parent := &process{pid: os.Getppid()}
	parent.start, _ = startOf(parent.pid)
	must(syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{}))
	fmt.Println(parent.start != "", parent.alive())
}

// A process that cannot be seen, because the agent has no descriptors left, has not ended:
// otherwise it would be started twice.
func TestAProcessThatCannotBeSeenHasNotEnded(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), taskVariable+"=starved", "GORACE=atexit_sleep_ms=0")
	// Not the standard error: a build that measures coverage complains there that it has no files.
	if said, err := cmd.Output(); err != nil || string(said) != "true true\n" {
		t.Errorf("got %q, %v; want a process that is alive", said, err)
	}
}

// A folder that cannot be read does not look as if nothing ran in it.
func TestAFolderThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	f, err := openFolder(t.TempDir(), 0)
	if err != nil {
		t.Fatal(err)
	}
	f.close()
	if _, err := f.instances(); err == nil {
		t.Error("got no error")
	}
}

// The shell that starts an instance keeps its own variables out of the environment.
func TestTheEnvironmentIsTheInstancesOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	out := new(shown)
	p := w.open(func(o *Options) {
		o.Command, o.Env, o.Output = []string{"sh", "-c", "echo $boot $stat"}, []string{"boot=mine", "stat=too"}, out
	})
	w.scale(p, 1)
	w.until(p, "it has printed", func(State) bool { return out.String() != "" })
	if got, _, _ := strings.Cut(out.String(), "\n"); got != "[1] mine too" {
		t.Errorf("got %.40q, want mine too", got)
	}
}

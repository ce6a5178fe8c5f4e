//go:build unix

package processes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// An agent of these tests is this test binary too. It reads numbers from its input, scales to each, and answers with what it has. With the
// command "churn" it goes on scaling until it is killed.
const (
	folderVariable  = "MILLRACE_PROCESSES_FOLDER"
	commandVariable = "MILLRACE_PROCESSES_COMMAND" // of an instance, if it is another one than this test binary
)

func init() { tasks["agent"] = playAgent }

func playAgent() {
	w := &world{folder: os.Getenv(folderVariable), socket: os.Getenv(socketVariable)}
	o := w.options()
	o.Logger = slog.New(slog.DiscardHandler)
	if command := os.Getenv(commandVariable); command != "" {
		o.Command = strings.Fields(command)
	}
	p, err := open(o, quick, true)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	s := p.State()
	fmt.Printf("has %d %d %d\n", s.Wanted, s.Draining, s.Adopted)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		n := 0
		if _, err := fmt.Sscan(lines.Text(), &n); err != nil {
			for {
				must(p.Scale(context.Background(), rand.IntN(5)))
				fmt.Println("churned")
			}
		}
		must(p.Scale(context.Background(), n))
		s := p.State()
		fmt.Printf("has %d %d %d\n", s.Wanted, s.Draining, s.Adopted)
	}
	os.Exit(0)
}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// agentProcess is an agent as another process, in a process group of its own, as if it ran in a terminal.
type agentProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.Writer
	lines *bufio.Scanner
}

func (w *world) agent(environment ...string) *agentProcess {
	w.t.Helper()
	a := &agentProcess{t: w.t, cmd: exec.CommandContext(w.t.Context(), os.Args[0])}
	a.cmd.Env = append(os.Environ(), taskVariable+"=agent", socketVariable+"="+w.socket, folderVariable+"="+w.folder, "GORACE=atexit_sleep_ms=0")
	a.cmd.Env = append(a.cmd.Env, environment...)
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	a.cmd.Stderr = os.Stderr
	in, err := a.cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { a.cmd.Wait() }) // the end of the test's context kills it
	a.in, a.lines = in, bufio.NewScanner(out)
	return a
}

func (a *agentProcess) scale(n int) { fmt.Fprintln(a.in, n) }

// has waits for what the agent has.
func (a *agentProcess) has(wanted, draining, adopted int) {
	a.t.Helper()
	if got, want := a.says(), fmt.Sprintf("has %d %d %d", wanted, draining, adopted); got != want {
		a.t.Fatalf("the agent: got %q, want %q", got, want)
	}
}

func (a *agentProcess) says() string {
	a.t.Helper()
	if !a.lines.Scan() {
		a.t.Fatalf("the agent has ended: %v", a.lines.Err())
	}
	return a.lines.Text()
}

// signal sends a signal to the process group, and waits until the agent has ended of it.
func (a *agentProcess) signal(s syscall.Signal) {
	a.t.Helper()
	if err := syscall.Kill(-a.cmd.Process.Pid, s); err != nil {
		a.t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := a.cmd.Wait(); !errors.As(err, &exit) {
		a.t.Fatalf("the agent: got %v, want its end by a signal", err)
	}
}

// an agent that is killed, or interrupted with Ctrl-C, leaves its instances at work. The next one has the same ones, nothing flaps, and those that drain are
// not told again.
func TestAKilledAgentLeavesItsInstances(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent()
	a.has(0, 0, 0)
	a.scale(3)
	a.has(3, 0, 0)
	kids := w.next(3)
	a.signal(syscall.SIGKILL)
	a = w.agent()
	a.has(3, 0, 3)
	a.scale(2)
	a.has(2, 1, 3)
	var drained *kid
	select { // the youngest, which may be any of those that were started at once
	case <-kids[1].said:
		drained = kids[1]
	case <-kids[2].said:
		drained = kids[2]
	case <-kids[3].said:
		drained = kids[3]
	case <-time.After(guard):
		t.Fatal("no instance was told")
	}
	// What was told is kept soon after it was told.
	a.scale(2)
	a.has(2, 1, 3)
	a.signal(syscall.SIGINT)
	delete(kids, drained.number)
	kids[4] = drained // under a number that nobody has

	a = w.agent()
	a.has(2, 1, 3)
	drained.end(0)
	one := slices.Collect(func(yield func(*kid) bool) {
		for n, k := range kids {
			if n != 4 && !yield(k) {
				return
			}
		}
	})[0]
	one.end(5)
	if again := w.one(); again.number != one.number {
		t.Errorf("number: got %d, want %d again", again.number, one.number)
	}
	a.scale(1)
	a.has(1, 1, 3)
	for _, k := range kids {
		if k.alive() && len(k.said) > 1 {
			t.Errorf("instance %d was told %d times", k.number, len(k.said))
		}
	}
	w.noneBegan()
}

// The next agent counts the instances that it finds: one that ended while no agent ran is decided about anew.
func TestTheNextAgentCountsWhatRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.agent()
	a.has(0, 0, 0)
	a.scale(2)
	kids := w.next(2)
	a.signal(syscall.SIGKILL)
	kids[1].end(0)
	a = w.agent()
	a.has(1, 0, 1)
	a.scale(2)
	a.has(2, 0, 1)
	if k := w.one(); k.number != 1 {
		t.Errorf("number: got %d, want 1", k.number)
	}
}

// If it is not certain that an instance was told, because the agent was killed just then, it is not told a second time before it has had
// its grace: told twice, a program drops its jobs.
func TestAnUncertainSignalIsNotRepeated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.open()
	w.scale(p, 2)
	kids := w.next(2)
	kids[2].order("spawn")
	child := spawned(t, kids[2])
	if err := errors.Join(p.Close(), os.Rename(w.folder+"/"+lockName(2), w.folder+"/"+drainName(2))); err != nil {
		t.Fatal(err)
	}
	p = w.open(func(o *Options) { o.Grace = time.Hour })
	if got, want := p.State(), (State{Wanted: 1, Running: 1, Draining: 1, Adopted: 2}); got != want {
		t.Fatalf("State: got %+v, want %+v", got, want)
	}
	kids[1].end(0) // what follows shows that the supervision has looked around
	w.one()
	if len(kids[2].said) != 0 {
		t.Error("it was told")
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	p = w.open(func(o *Options) { o.Grace = time.Millisecond })
	w.until(p, "it was told after its grace, and killed after another one", func(s State) bool { return s.Draining == 0 && s.Killed == 1 })
	w.dead(child)
}

// The file of an instance that is started again has the id of the new process alone, never that of an older one.
func TestAnOldIdIsNotLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.open()
	w.scale(p, 1)
	k := w.one()
	path := w.folder + "/" + lockName(1)
	if err := os.WriteFile(path, []byte("123456789012345678\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k.end(0)
	again := w.one()
	if text, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(text), fmt.Sprint(again.pid, " ")) || strings.Count(string(text), "\n") != 1 {
		t.Errorf("the file: got %q, %v; want %d alone", text, err, again.pid)
	}
}

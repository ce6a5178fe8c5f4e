//go:build unix

package processes

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// instances come and go as they are asked for. Surplus ones are told once and finish their jobs, and those that come meanwhile are new.
func TestInstancesComeAndFinishTheirJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.open()
	w.scale(p, 1)
	one := w.one()
	w.scale(p, 3)
	kids := w.next(2)
	if one.number != 1 || kids[2] == nil || kids[3] == nil {
		t.Fatalf("numbers: got %d first and then %v, want 1…3", one.number, kids)
	}
	for _, k := range kids {
		if group, err := syscall.Getpgid(k.pid); err != nil || group != k.pid {
			t.Errorf("process group of instance %d: got %d, %v; want its own, %d", k.number, group, err, k.pid)
		}
	}

	w.scale(p, 1)
	for _, k := range kids { // the youngest two
		if got := k.hears(); got != "told" {
			t.Errorf("got %q, want told", got)
		}
	}
	w.until(p, "two drain", func(s State) bool { return s.Running == 1 && s.Draining == 2 })
	w.scale(p, 2)
	four := w.one()
	if four.number != 4 {
		t.Errorf("number of an instance that comes while 2 and 3 drain: got %d, want 4", four.number)
	}
	kids[2].end(0)
	w.until(p, "one drains", func(s State) bool { return s.Running == 2 && s.Draining == 1 })
	w.reaped(kids[2].pid)
	w.scale(p, 3)
	if again := w.one(); again.number != 2 {
		t.Errorf("number: got %d, want that of the instance that has ended, 2", again.number)
	}
	if !kids[3].alive() || !one.alive() {
		t.Error("an instance has ended in the middle of a job")
	}
	if n := len(one.said) + len(kids[3].said) + len(four.said); n != 0 {
		t.Errorf("%d more signals were sent, want one to each surplus instance", n)
	}
	if got, want := p.State(), (State{Wanted: 3, Running: 3, Draining: 1}); got != want {
		t.Errorf("State: got %+v, want %+v", got, want)
	}
	if err := p.Scale(t.Context(), -1); err == nil {
		t.Error("Scale(-1): got no error")
	}
}

// an instance that does not end within the grace is killed, with what it has started, and that is reported.
func TestAnInstanceThatDoesNotEndIsKilled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.open(func(o *Options) { o.Grace = time.Millisecond })
	w.scale(p, 1)
	k := w.one()
	k.order("spawn")
	child := spawned(t, k)
	k.order("print the last words|")
	k.hears()
	w.scale(p, 0)
	k.waitGone()
	w.until(p, "it has ended", func(s State) bool { return s == State{Killed: 1} })
	w.reaped(k.pid)
	w.dead(child)
	if log := w.log.String(); !strings.Contains(log, "instance is killed") || !strings.Contains(log, "the last words") {
		t.Errorf("log: got %s, want that it was killed and its last words", log)
	}
}

// Close ends the supervision: without drain the instances run on, and the next one finds them; with drain they finish first.
func TestCloseLeavesOrEndsThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.open()
	w.scale(p, 2)
	kids := w.next(2)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Instances(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Instances after Close: got %v, want ErrClosed", err)
	}
	if err := p.Scale(t.Context(), 1); !errors.Is(err, ErrClosed) {
		t.Errorf("Scale after Close: got %v, want ErrClosed", err)
	}
	if err := p.Drain(t.Context()); err != nil {
		t.Errorf("second Close: got %v, want nil", err)
	}

	p = w.open()
	if got, want := p.State(), (State{Wanted: 2, Running: 2, Adopted: 2}); got != want {
		t.Fatalf("State: got %+v, want %+v", got, want)
	}
	kids[1].end(3) // a child of this process, started before
	w.reaped(kids[1].pid)
	kids[1] = w.one()

	// Time runs out: they have been told, and the next one waits for them.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Drain(ended); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "2 instances have not ended") {
		t.Errorf("Close without time: got %v, want an error with their number", err)
	}
	for _, k := range kids {
		if got := k.hears(); got != "told" || !k.alive() {
			t.Errorf("got %q, alive %v; want an instance that was told and works", got, k.alive())
		}
	}
	p = w.open()
	if got, want := p.State(), (State{Draining: 2, Adopted: 2}); got != want {
		t.Fatalf("State: got %+v, want %+v", got, want)
	}
	closed := make(chan error)
	go func() { closed <- p.Drain(t.Context()) }()
	for _, k := range kids {
		k.end(0)
		if n := len(k.said); n != 0 {
			t.Errorf("instance %d was told %d times more", k.number, n)
		}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	w.noneBegan()
	w.leftOver(agentLock, graceName)
}

// leftOver checks which files the folder has.
func (w *world) leftOver(want ...string) {
	w.t.Helper()
	entries, err := os.ReadDir(w.folder)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if err != nil || !slices.Equal(names, want) {
		w.t.Errorf("files in the folder: got %v, %v; want %v", names, err, want)
	}
}

// A folder is for one agent.
func TestASecondAgentIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.open()
	o := w.options()
	_, err := New(&o)
	if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), w.folder) {
		t.Fatalf("got %v, want ErrInUse and the folder", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	w.open()
}

func TestBadOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Options)
		want   []string
	}{
		"nothing":       {func(o *Options) { *o = Options{} }, []string{"there is no Command", "there is no Folder"}},
		"no program":    {func(o *Options) { o.Command = []string{"no-such-program-anywhere"} }, []string{"no-such-program-anywhere", "not found"}},
		"no file":       {func(o *Options) { o.Command = []string{"/no/such/file"} }, []string{"/no/such/file", "no such file"}},
		"a folder":      {func(o *Options) { o.Command = []string{os.TempDir()} }, []string{os.TempDir()}},
		"environment":   {func(o *Options) { o.Env = []string{"A=b", "C"} }, []string{"entry 2 of Env is not of the form"}},
		"grace":         {func(o *Options) { o.Grace = -1 }, []string{"Grace of -1ns"}},
		"folder a file": {func(o *Options) { o.Folder = os.Args[0] }, []string{os.Args[0], "not a directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := (&world{t: t, folder: t.TempDir(), log: &logged{}}).options()
			c.change(&o)
			p, err := New(&o)
			if err == nil {
				p.Drain(t.Context())
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want an error with %q", err, want)
				}
			}
		})
	}
}

// Drain ends what a former agent has left, within its grace, and starts nothing. Left counts it, and nothing that is supervised.
func TestDrainEndsWhatIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	left := func(want int) {
		t.Helper()
		if n, err := Left(w.folder); n != want || err != nil {
			t.Errorf("Left: got %d, %v; want %d", n, err, want)
		}
	}
	left(0)
	if _, err := os.Stat(w.folder); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Left has made the folder: %v", err)
	}
	p := w.open(func(o *Options) { o.Grace = time.Hour })
	w.scale(p, 3)
	kids := w.next(3)
	left(0)
	if err := Drain(t.Context(), &Options{Folder: w.folder}); !errors.Is(err, ErrInUse) {
		t.Errorf("Drain of instances that are supervised: got %v, want ErrInUse", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	kids[3].end(0)
	left(2)
	drained := make(chan error)
	go func() {
		drained <- Drain(t.Context(), &Options{Folder: w.folder, Logger: w.log.logger(), Output: io.Discard})
	}()
	for _, n := range []int{1, 2} {
		if got := kids[n].hears(); got != "told" {
			t.Errorf("got %q, want told", got)
		}
		kids[n].end(0)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
	w.noneBegan()
	left(0)
	w.leftOver(agentLock, graceName)
	if text, err := os.ReadFile(w.folder + "/" + graceName); string(text) != "1h0m0s" || err != nil {
		t.Errorf("grace: got %q, %v, want that of the former agent", text, err)
	}
}

// The environment and the arguments of an instance.
func TestAnInstanceGetsItsSettings(t *testing.T) {
	t.Setenv("MILLRACE_TEST_KEPT", "kept")
	t.Setenv("MILLRACE_TEST_SETTING", "replaced")
	w := newWorld(t)
	output := &shown{}
	p := w.open(func(o *Options) {
		o.Command = []string{"sh", "-c", `echo "$MILLRACE_TEST_KEPT $MILLRACE_TEST_SETTING $` + NumberVariable + ` <$1>"; read x; exec sleep 1000`, "sh", "one 'word' $HOME"}
		o.Env = []string{"MILLRACE_TEST_SETTING=set"}
		o.Output = output
	})
	w.scale(p, 1)
	w.until(p, "it has written", func(State) bool { return strings.HasSuffix(output.String(), "\n") })
	if got, want := output.String(), "[1] kept set 1 <one 'word' $HOME>\n"; got != want {
		t.Errorf("output: got %q, want %q", got, want)
	}
	if err := p.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// The folder is not readable by others: what instances write may be confidential.
func TestTheFolderIsPrivate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.open()
	w.scale(p, 1)
	w.next(1)
	for _, name := range []string{"", graceName, lockName(1), outputName(1)} {
		if info, err := os.Stat(w.folder + "/" + name); err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: got %v, %v; want no rights for others", name, info.Mode(), err)
		}
	}
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/queue/azurequeue"
)

// program is a running process of the program.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *bufio.Reader
	stderr bytes.Buffer
	tmp    string
}

func start(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{t: t, tmp: t.TempDir()}
	p.cmd = exec.CommandContext(t.Context(), os.Args[0], args...)
	p.cmd.Env = append(os.Environ(), asMosaic+"=1", "TMPDIR="+p.tmp)
	p.cmd.Stderr = &p.stderr
	pipe, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewReader(pipe)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// until reads the program's output up to a line with the text.
func (p *program) until(text string) {
	p.t.Helper()
	for {
		line, err := p.stdout.ReadString('\n')
		if strings.Contains(line, text) {
			return
		}
		if err != nil {
			p.t.Fatalf("output: got its end, want %q; stderr: %s", text, p.stderr.String())
		}
	}
}

func (p *program) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// wait returns the exit status, -1 for a signal.
func (p *program) wait() int {
	p.t.Helper()
	if _, err := io.Copy(io.Discard, p.stdout); err != nil {
		p.t.Fatal(err)
	}
	err := p.cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// stopped checks that the program ended as after an interruption and left no files.
func (p *program) stopped(dir string) {
	p.t.Helper()
	if status := p.wait(); status != statusFailed {
		p.t.Errorf("status: got %d, want %d", status, statusFailed)
	}
	if got := p.stderr.String(); got != "mosaic: "+errStopped.Error()+"\n" {
		p.t.Errorf("stderr: got %s, want %v", got, errStopped)
	}
	if got := left(p.t, p.tmp); len(got) != 0 {
		p.t.Errorf("temporary files: got %v, want none", got)
	}
	for _, name := range left(p.t, dir) {
		if strings.HasPrefix(name, ".") || name == "out.png" {
			p.t.Errorf("folder: got the partial file %s, want none", name)
		}
	}
}

// work returns arguments for a job that takes long enough to be interrupted.
func work(t *testing.T, dir string, flags ...string) []string {
	in := filepath.Join(dir, "in.png")
	if _, err := os.Stat(in); err != nil {
		photo(t, in, 800, 800)
	}
	return append([]string{"render", "-in", in, "-out", filepath.Join(dir, "out.png"), "-tile", "2", "-slices", "100", "-tiles", fewTiles(t)}, flags...)
}

func TestOneSignalStopsCleanly(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]os.Signal{"Ctrl-C": os.Interrupt, "SIGTERM": syscall.SIGTERM} {
		for _, when := range []string{"to choose from", "slices are finished"} {
			t.Run(name+" at "+when, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				p := start(t, work(t, dir)...)
				p.until(when)
				p.signal(s)
				p.stopped(dir)
			})
		}
	}
}

func TestTwoSignalsStopAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := start(t, work(t, dir)...)
	p.until("slices are finished")
	p.signal(os.Interrupt)
	p.signal(os.Interrupt)
	p.stopped(dir)
}

func TestASignalStopsThePreparation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	photo(t, filepath.Join(dir, "tiles", "0.png"), 400, 400)
	for i := range 200 {
		needs(t, os.Link(filepath.Join(dir, "tiles", "0.png"), filepath.Join(dir, "tiles", string(rune('a'+i%20))+string(rune('a'+i/20))+".png")))
	}
	p := start(t, work(t, dir, "-tiles", filepath.Join(dir, "tiles"))...) // the last flag counts
	p.until("reading tiles")
	p.signal(os.Interrupt)
	p.stopped(dir)
}

// accounts returns accounts that outlive the program: one of our emulator, and one of Azurite if it is
// installed.
func accounts(t *testing.T, test func(t *testing.T, location string)) {
	t.Run("emulator", func(t *testing.T) {
		t.Parallel()
		e, err := emulator.New(nil, nil).Start("")
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, e.ConnectionString())
	})
	t.Run("azurite", func(t *testing.T) {
		t.Parallel()
		test(t, azuritetest.ConnectionString(t))
	})
}

// TestKilledAndRunAgain kills a run. The next one on the same account succeeds, although every queue
// still has messages of the first.
func TestKilledAndRunAgain(t *testing.T) {
	t.Parallel()
	accounts(t, func(t *testing.T, location string) {
		dir := t.TempDir()
		blobs := filepath.Join(dir, "blobs")
		shared := []string{"-account", location, "-blobs", blobs}
		victim := start(t, work(t, dir, shared...)...)
		victim.until("slices are finished")
		victim.signal(syscall.SIGKILL)
		if status := victim.wait(); status != -1 {
			t.Fatalf("status: got %d, want -1: it finished before it was killed", status)
		}
		if _, err := os.Stat(filepath.Join(dir, "out.png")); err == nil {
			t.Error("output of a killed run: got a file, want none")
		}

		small, out := filepath.Join(dir, "small.png"), filepath.Join(dir, "small-out.png")
		photo(t, small, 64, 64)
		r := mosaic(t, append([]string{"render", "-in", small, "-out", out, "-tiles", fewTiles(t)}, shared...)...)
		if r.status != statusDone {
			t.Fatalf("status %d: %s; want status %v", r.status, r.stderr, statusDone)
		}
		read(t, out)

		// The rest is left for the next run, which continues until every request has ended or its
		// messages are hidden.
		store, err := blob.Dir(blobs)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		ends := 0
		for ref, err := range store.List(t.Context(), "jobs", "") {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(ref.Name, "/end") {
				ends++
			}
		}
		if ends == 0 {
			t.Error("ended requests: got none, want one")
		}
		drop(t, location)
	})
}

// TestBlobsInAnotherFolderAreRefusedAtOnce: a program with another folder for blobs than the killed run
// that left messages names both folders and says what to do.
func TestBlobsInAnotherFolderAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	e, err := emulator.New(nil, nil).Start("") // an account of its own: it is in use
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	location := e.ConnectionString()
	dir := t.TempDir()
	theirs, ours := filepath.Join(dir, "theirs"), filepath.Join(dir, "ours")
	victim := start(t, work(t, dir, "-account", location, "-blobs", theirs)...)
	victim.until("slices are finished")
	victim.signal(syscall.SIGKILL)
	if status := victim.wait(); status != -1 {
		t.Fatalf("status: got %d, want -1: it finished before it was killed", status)
	}
	small, out := filepath.Join(dir, "small.png"), filepath.Join(dir, "small-out.png")
	photo(t, small, 64, 64)
	render := func(blobs string) result {
		return mosaic(t, "render", "-in", small, "-out", out, "-tiles", fewTiles(t), "-account", location, "-blobs", blobs)
	}
	r := render(ours)
	if r.status != statusFailed || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("got %+v; want status %v, one line on stderr", r, statusFailed)
	}
	for _, want := range []string{"blobs in " + theirs + " on ", "looks in " + ours + " on ", "messages", "-blobs", "millrace clear imagerequest"} {
		if !strings.Contains(r.stderr, want) {
			t.Errorf("stderr: got %s, want %q in it", r.stderr, want)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("output: got a file, want none")
	}
	clearAll(t, location)
	for _, blobs := range []string{ours, theirs} { // without messages, either may use the account
		if r := render(blobs); r.status != statusDone {
			t.Errorf("with %s: got %+v, want status %d", blobs, r, statusDone)
		}
	}
}

// clearAll clears the queues, as the error advises.
func clearAll(t *testing.T, location string) {
	t.Helper()
	for _, name := range []string{"imagerequest", "slicerequest", "sliceresponse", "imageresponse"} {
		q, err := azurequeue.Open(location, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(q.Clear(t.Context()), q.Close()); err != nil {
			t.Error(err)
		}
	}
}

// drop deletes the queues, for the next test and because Azurite becomes slow.
func drop(t *testing.T, location string) {
	t.Helper()
	for _, name := range []string{"imagerequest", "slicerequest", "sliceresponse", "imageresponse"} {
		for _, suffix := range []string{"", "-poison"} {
			q, err := azurequeue.Open(location, name+suffix, nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = q.Drop(context.WithoutCancel(t.Context())) // it may not exist
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestTheProgramsExitStatusIsThatOfTheProcess(t *testing.T) {
	dir := t.TempDir()
	if p := start(t, "render", "-tile", "0"); p.wait() != statusUsage || strings.Count(p.stderr.String(), "\n") != 1 {
		t.Errorf("stderr: %s; want status %v, one line on stderr", p.stderr.String(), statusUsage)
	}
	if p := start(t, "render", "-in", filepath.Join(dir, "none.png"), "-out", filepath.Join(dir, "out.png")); p.wait() != statusFailed || strings.Count(p.stderr.String(), "\n") != 1 {
		t.Errorf("stderr: %s; want status %v, one line on stderr", p.stderr.String(), statusFailed)
	}
}

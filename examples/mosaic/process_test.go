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
	"sync"
	"syscall"
	"testing"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/queue/azurequeue"
)

// program is a running process of the program.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *bufio.Reader
	stderr errorLines
	tmp    string
}

// errorLines collects what a program writes to stderr.
type errorLines struct {
	mu    sync.Mutex
	b     bytes.Buffer  // guarded by mu
	wrote chan struct{} // has a value after a write
}

func (e *errorLines) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case e.wrote <- struct{}{}:
	default:
	}
	return e.b.Write(p)
}

func (e *errorLines) String() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.b.String()
}

func (e *errorLines) Len() int { return len(e.String()) }

// untilErr waits until the program has written the text to stderr.
func (p *program) untilErr(text string) {
	p.t.Helper()
	for !strings.Contains(p.stderr.String(), text) {
		select {
		case <-p.stderr.wrote:
		case <-p.t.Context().Done():
			p.t.Fatalf("stderr: got %q, want %q", p.stderr.String(), text)
		}
	}
}

func start(t *testing.T, args ...string) *program {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	p := &program{t: t, tmp: t.TempDir()}
	p.stderr.wrote = make(chan struct{}, 1)
	p.cmd = exec.CommandContext(t.Context(), os.Args[0], args...)
	p.cmd.Env = append(os.Environ(), "TMPDIR="+p.tmp)
	p.cmd.Stderr = &p.stderr
	pipe, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewReader(pipe)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil { // nobody has waited for it; the end of the test's context has killed it
			_ = p.cmd.Wait()
		}
	})
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
	if status := p.wait(); status != cli.StatusFailed {
		p.t.Errorf("status: got %d, want %d", status, cli.StatusFailed)
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

// manySlices makes the rest of the work, after the first slices are finished, longer than a signal takes on a busy machine.
var manySlices = []string{"-slices", "400"} // the last flag counts

func TestOneSignalStopsCleanly(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]os.Signal{"Ctrl-C": os.Interrupt, "SIGTERM": syscall.SIGTERM} {
		for _, when := range []string{"to choose from", "slices are finished"} {
			t.Run(name+" at "+when, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				p := start(t, work(t, dir, manySlices...)...)
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
	p := start(t, work(t, dir, manySlices...)...)
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
		e, err := must(emulator.New(nil, nil)).Start("")
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
		shared := []string{"-account", location, "-blobs", blobs, "-roles", "all"}
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
		if r.status != cli.StatusDone {
			t.Fatalf("status %d: %s; want status %v", r.status, r.stderr, cli.StatusDone)
		}
		read(t, out)

		// The rest is left for the next run, which continues until every request has ended or its
		// messages are hidden.
		store, err := blob.Open(blobs)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		ends := 0
		for b, err := range store.List(t.Context(), "sliceresponse", "") {
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(b.Ref.Name, "/end") {
				ends++
			}
		}
		if ends == 0 {
			t.Error("ended requests: got none, want one")
		}
		drop(t, location)
	})
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
	if p := start(t, "render", "-tile", "0"); p.wait() != cli.StatusUsage || strings.Count(p.stderr.String(), "\n") != 1 {
		t.Errorf("stderr: %s; want status %v, one line on stderr", p.stderr.String(), cli.StatusUsage)
	}
	if p := start(t, "render", "-in", filepath.Join(dir, "none.png"), "-out", filepath.Join(dir, "out.png")); p.wait() != cli.StatusFailed || strings.Count(p.stderr.String(), "\n") != 1 {
		t.Errorf("stderr: %s; want status %v, one line on stderr", p.stderr.String(), cli.StatusFailed)
	}
}

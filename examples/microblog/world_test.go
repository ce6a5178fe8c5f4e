package main

import (
	"context"
	"errors"
	"html"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/examples/internal/cli"
)

// output collects what a program writes.
type output struct {
	mu    sync.Mutex
	text  strings.Builder // guarded by mu
	wrote chan struct{}   // has a value after a write
}

func newOutput() *output { return &output{wrote: make(chan struct{}, 1)} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.wrote <- struct{}{}:
	default:
	}
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// running is a program that runs, in this process or in one of its own.
type running struct {
	t      *testing.T
	out    *output
	ended  chan struct{} // closed when it has ended
	status int           // set before
	stop   func()        // as Ctrl-C does
	cmd    *exec.Cmd     // nil in this process
}

// run runs the program in this process, until the end of the test at most.
func run(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{t: t, out: newOutput(), ended: make(chan struct{}), stop: stop}
	go func() { // waited for below
		defer close(r.ended)
		r.status = command(ctx, args, r.out, r.out)
	}()
	t.Cleanup(func() { <-r.ended })
	t.Cleanup(stop)
	return r
}

// process runs the program in a process of its own, with more environment variables.
func process(t *testing.T, environment []string, args ...string) *running {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	r := &running{t: t, out: newOutput(), ended: make(chan struct{}), cmd: exec.CommandContext(t.Context(), os.Args[0], args...)}
	r.cmd.Env = append(os.Environ(), environment...)
	r.cmd.Stdout, r.cmd.Stderr = r.out, r.out
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.stop = func() { r.signal(os.Interrupt) }
	go func() { // waited for below
		defer close(r.ended)
		_ = r.cmd.Wait() // its status is in ProcessState
		r.status = r.cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() { <-r.ended }) // the end of the test's context has killed it
	return r
}

func (r *running) signal(s os.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		r.t.Fatal(err)
	}
}

// until waits until the program has written what matches the pattern, and returns what its parentheses match.
func (r *running) until(pattern string) string {
	r.t.Helper()
	compiled := regexp.MustCompile(pattern)
	for over := false; ; {
		if found := compiled.FindStringSubmatch(r.out.String()); found != nil {
			return found[len(found)-1]
		}
		if over {
			r.t.Fatalf("output: got %q and its end, want %q", r.out, pattern)
		}
		select {
		case <-r.out.wrote:
		case <-r.ended:
			over = true
		}
	}
}

// address waits until the pages are served, and returns where.
func (r *running) address() string { return r.until(`The microblog is at (http://[^/]+)/`) }

// wait waits for the end, and returns the status.
func (r *running) wait() int {
	<-r.ended
	return r.status
}

// end stops the program, which must end well.
func (r *running) end() {
	r.t.Helper()
	r.stop()
	if status := r.wait(); status != cli.StatusDone {
		r.t.Errorf("got status %d, want %d: %s", status, cli.StatusDone, r.out)
	}
}

// browser sends requests to a microblog, and follows redirects.
type browser struct {
	t       *testing.T
	address string
}

func (b *browser) do(r *http.Request) (status int, page string) {
	b.t.Helper()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // it is read
	if err != nil {
		b.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func (b *browser) get(path string) (status int, page string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.address+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.do(r)
}

// post sends a form with fields given as name and value in turn; it must be accepted.
func (b *browser) post(path string, fields ...string) (page string) {
	b.t.Helper()
	values := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		values.Set(fields[i], fields[i+1])
	}
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.address+path, strings.NewReader(values.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	status, page := b.do(r)
	if status != http.StatusOK {
		b.t.Fatalf("POST %s: got %d: %s", path, status, page)
	}
	return page
}

// action returns where the form of a page is sent.
func (b *browser) action(path string) string {
	b.t.Helper()
	status, page := b.get(path)
	match := regexp.MustCompile(`method="post" action="([^"]*)"`).FindStringSubmatch(page)
	if status != http.StatusOK || match == nil {
		b.t.Fatalf("%s: got %d: %s", path, status, page)
	}
	return html.UnescapeString(match[1])
}

// names returns the files in a folder.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/millrace/millrace/examples/internal/cli"
)

// process is a running process.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   outputLines
	ended chan struct{} // closed when the process has ended and all of its output is there
}

// outputLines collects what a process writes to stdout and stderr.
type outputLines struct {
	mu    sync.Mutex
	text  strings.Builder // guarded by mu
	read  int             // bytes that until has passed; guarded by mu
	wrote chan struct{}   // has a value after a write
}

func (o *outputLines) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.wrote <- struct{}{}:
	default:
	}
	return o.text.Write(p)
}

func (o *outputLines) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// next returns the first match in what was written since the last one.
func (o *outputLines) next(pattern *regexp.Regexp) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	rest := o.text.String()[o.read:]
	found := pattern.FindStringSubmatchIndex(rest)
	if found == nil {
		return nil
	}
	o.read += found[1]
	return pattern.FindStringSubmatch(rest)
}

// run starts a program, which the end of the test kills.
func run(t *testing.T, program string, environment []string, args ...string) *process {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	p := &process{t: t, cmd: exec.CommandContext(t.Context(), program, args...)}
	p.out.wrote = make(chan struct{}, 1)
	p.cmd.Env = append(os.Environ(), environment...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.ended = make(chan struct{})
	go func() { // waited for below
		defer close(p.ended)
		_ = p.cmd.Wait() // its status is in ProcessState
	}()
	t.Cleanup(func() { <-p.ended }) // the end of the test's context has killed it
	return p
}

// start starts a command of this program.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return run(t, os.Args[0], []string{asBilling + "=1"}, args...)
}

// until waits until the process has written a line that matches the pattern, and returns the match.
func (p *process) until(pattern string) []string {
	p.t.Helper()
	compiled := regexp.MustCompile(pattern)
	for {
		if found := p.out.next(compiled); found != nil {
			return found
		}
		select {
		case <-p.out.wrote:
		case <-p.ended:
			if found := p.out.next(compiled); found != nil {
				return found
			}
			p.t.Fatalf("output: got %q and its end, want %q", p.out.String(), pattern)
		}
	}
}

// listens waits until a role is at work and waits for signals. It may be called again.
func (p *process) listens() {
	p.t.Helper()
	for !strings.Contains(p.out.String(), "stop it with Ctrl-C") {
		select {
		case <-p.out.wrote:
		case <-p.ended:
			p.t.Fatalf("output: got %q and its end, want that it can be stopped", p.out.String())
		}
	}
}

// wait returns the exit status, -1 for a signal.
func (p *process) wait() int {
	p.t.Helper()
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// kill kills the process with SIGKILL, unless it has ended.
func (p *process) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	p.wait()
}

// stop ends a role with Ctrl-C.
func (p *process) stop() {
	p.t.Helper()
	p.signal(os.Interrupt)
	if status := p.wait(); status != cli.StatusDone {
		p.t.Errorf("%v after Ctrl-C: got status %d, want %d: %s", p.cmd.Args, status, cli.StatusDone, p.out.String())
	}
}

// serverProgram builds the command with the server, once.
var serverProgram = sync.OnceValues(func() (string, error) {
	path := filepath.Join(os.Getenv("XDG_DATA_HOME"), "millrace.test")
	out, err := exec.Command("go", "build", "-o", path, "github.com/millrace/millrace/cmd/millrace").CombinedOutput()
	if err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

// server is millrace serve.
type server struct {
	t        *testing.T
	data     string
	address  string // the same after a restart
	location string
	process  *process
}

func newServer(t *testing.T) *server {
	s := &server{t: t, data: t.TempDir(), address: "127.0.0.1:0"}
	s.start()
	match := s.process.until(`QueueEndpoint=http://([^/]+)/[^;\s]*`)
	s.address = match[1]
	s.location = regexp.MustCompile(`\S*QueueEndpoint=\S*`).FindString(s.process.out.String())
	return s
}

func (s *server) start() {
	s.t.Helper()
	program, err := serverProgram()
	if err != nil {
		s.t.Fatal(err)
	}
	s.process = run(s.t, program, nil, "serve", "-data", s.data, "-addr", s.address)
}

// find returns what the pattern's parentheses match in all that the process has written.
func (p *process) find(pattern string) string {
	p.t.Helper()
	match := regexp.MustCompile(pattern).FindStringSubmatch(p.out.String())
	if match == nil {
		p.t.Fatalf("output: got %q, want %q", p.out.String(), pattern)
	}
	return match[1]
}

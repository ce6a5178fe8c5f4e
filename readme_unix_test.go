//go:build unix

package millrace_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The commands of the README that keep running.
const (
	serveCommand  = "millrace serve"
	workerCommand = "go run ./examples/firstjob"
)

// TestTheFirstJobOfTheReadmeRuns runs the commands of the section "Your first job" in order and
// compares their output, except for what differs from run to run. A test of cmd/millrace checks
// the output of "millrace serve" at its usual address.
func TestTheFirstJobOfTheReadmeRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("builds two programs")
	}
	s := openShells(t)
	blocks := readmeBlocks(t, "## Your first job\n", "console")
	for _, block := range blocks {
		s.play(t, block)
	}
	if s.server == nil || s.worker == nil || !s.stopped {
		t.Errorf("server started: %v, worker started: %v, worker stopped: %v; want all true: %q",
			s.server != nil, s.worker != nil, s.stopped, blocks)
	}
}

// TestPausingWorkersIsAsTheReadmeShows runs the commands of that section.
func TestPausingWorkersIsAsTheReadmeShows(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	s := openShells(t)
	s.serve(t)
	blocks := readmeBlocks(t, "## Pausing workers\n", "console")
	if len(blocks) != 1 {
		t.Fatalf("README.md: got %d blocks of commands, want 1", len(blocks))
	}
	s.play(t, blocks[0])
}

// shells are the terminals of a reader who follows the README.
type shells struct {
	bin      string   // where millrace is
	location string   // of the server's account
	server   *process // nil before it is started
	worker   *process // likewise
	stopped  bool     // the worker was told to stop, and did
}

// openShells builds the command.
func openShells(t *testing.T) *shells {
	t.Helper()
	s := &shells{bin: t.TempDir()}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", s.bin, "./cmd/millrace").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return s
}

// serve starts the server.
func (s *shells) serve(t *testing.T) {
	t.Helper()
	s.server = s.start(t, serveCommand+" -addr 127.0.0.1:0")
	s.location = s.server.readField(t, "connection string")
}

// play runs a block: commands with their output, output that the worker prints meanwhile, or
// Ctrl-C.
func (s *shells) play(t *testing.T, block string) {
	t.Helper()
	shown, commands := strings.CutPrefix(block, "$ ")
	if !commands {
		if rest, stop := strings.CutPrefix(block, "^C\n"); stop {
			s.stop(t, rest)
			return
		}
		s.worker.expect(t, block)
		return
	}
	for one := range strings.SplitSeq(shown, "\n$ ") {
		command, output, _ := strings.Cut(strings.TrimSuffix(one, "\n"), "\n")
		switch command {
		case serveCommand:
			s.serve(t)
		case workerCommand:
			s.worker = s.start(t, command)
			s.worker.expect(t, output)
		default:
			out, err := s.command(t.Context(), command).CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v", command, err)
			}
			compare(t, command, strings.TrimSuffix(string(out), "\n"), output)
		}
	}
}

// stop sends Ctrl-C to every process of a shell's command.
func (s *shells) stop(t *testing.T, output string) {
	t.Helper()
	if err := syscall.Kill(-s.worker.command.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	s.worker.expect(t, output)
	for s.worker.lines.Scan() {
		t.Errorf("%s: got the line %q, want no more output", workerCommand, s.worker.lines.Text())
	}
	_ = s.worker.command.Wait() // "go run" fails when it is interrupted
	s.stopped = true
}

// command returns a command line as a shell runs it, with the server's address in AZURE_STORAGE
// because the usual port may be in use.
func (s *shells) command(ctx context.Context, line string) *exec.Cmd {
	c := exec.CommandContext(ctx, "sh", "-c", "exec "+line)
	c.Env = append(os.Environ(), "PATH="+s.bin+string(filepath.ListSeparator)+os.Getenv("PATH"), "AZURE_STORAGE="+s.location)
	return c
}

// process is a command that keeps running.
type process struct {
	command *exec.Cmd
	lines   *bufio.Scanner // of its output
}

// start starts a command in a process group of its own, which ends with the test.
func (s *shells) start(t *testing.T, line string) *process {
	t.Helper()
	// The time-out turns a line that never comes into a failure.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	c := s.command(ctx, line)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.Cancel = kill
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout, c.Stderr = w, w
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close() // the child has its own copy
	t.Cleanup(func() {
		if c.ProcessState == nil {
			_ = kill()
			_ = c.Wait()
		}
		cancel()
		_ = r.Close()
	})
	return &process{command: c, lines: bufio.NewScanner(r)}
}

// readField reads up to the line that begins with a name, and returns the rest of that line.
func (p *process) readField(t *testing.T, name string) string {
	t.Helper()
	for p.lines.Scan() {
		if value, ok := strings.CutPrefix(strings.TrimSpace(p.lines.Text()), name); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("output: got no line that begins with %q", name)
	return ""
}

// expect reads as many lines as are wanted and compares them.
func (p *process) expect(t *testing.T, lines string) {
	t.Helper()
	if p == nil {
		t.Fatalf("no worker is running yet, want the output %q", lines)
	}
	for want := range strings.SplitSeq(strings.TrimSuffix(lines, "\n"), "\n") {
		if !p.lines.Scan() {
			t.Fatalf("output of the worker: got its end, want %q", want)
		}
		compare(t, "the worker", p.lines.Text(), want)
	}
}

// varying matches what differs from run to run.
var varying = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\d{4}/\d\d/\d\d \d\d:\d\d:\d\d`), "TIME"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "MESSAGE"},
	{regexp.MustCompile(`\b[A-Z2-7]{26}\b`), "JOB"},
	{regexp.MustCompile(`since \S+Z, \d+s ago`), "since TIME, AGE ago"},
	{regexp.MustCompile(`put \d+s ago`), "put AGE ago"},
	{regexp.MustCompile(`requests=\d+ by_cause="\d+ fetch \(\d+ empty\)`), `requests=N by_cause="N fetch (N empty)`},
	{regexp.MustCompile(`after=\S+`), "after=DURATION"},
}

// compare compares the output of a command with that in README.md.
func compare(t *testing.T, command, got, want string) {
	t.Helper()
	normalGot, normalWant := got, want
	for _, v := range varying {
		normalGot = v.pattern.ReplaceAllString(normalGot, v.name)
		normalWant = v.pattern.ReplaceAllString(normalWant, v.name)
	}
	if normalGot != normalWant {
		t.Errorf("output of %s: got\n%s\nwant, from README.md\n%s", command, got, want)
	}
}

// TestLinksInDocumentsLeadToFiles checks relative links.
func TestLinksInDocumentsLeadToFiles(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "README.md", "CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		prose := regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`").ReplaceAllString(string(text), "")
		for _, m := range regexp.MustCompile(`\]\(([^)#\s]+)`).FindAllStringSubmatch(prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}

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

// TestTheFirstJobOfTheReadmeRuns runs the commands of the README in order and compares their output,
// except for the parts that vary. Workers of other tests would see the file that makes its jobs fail.
func TestTheFirstJobOfTheReadmeRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("builds two programs")
	}
	t.Cleanup(func() { _ = os.Remove("carrier-down") }) // if the test ends early
	s := openShells(t)
	s.serve(t)
	for _, block := range consoleBlocks(t, "README.md") {
		s.play(t, block)
	}
	if s.worker == nil || !s.stopped {
		t.Errorf("worker started: %v, worker stopped: %v; want both true", s.worker != nil, s.stopped)
	}
}

// TestThePausePageRuns runs the commands of docs/pause.md.
func TestThePausePageRuns(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds a program")
	}
	s := openShells(t)
	s.serve(t)
	if out, err := s.command(t.Context(), "millrace create orders").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, block := range consoleBlocks(t, "docs/pause.md") {
		s.play(t, block)
	}
}

// consoleBlocks returns the console blocks of a page, at least one.
func consoleBlocks(t *testing.T, page string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```console\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no console blocks", page)
	}
	return blocks
}

// shells are the terminals of a reader who follows the README.
type shells struct {
	bin      string   // where millrace is
	location string   // of the server's account
	server   *process // nil before it is started
	worker   *process // likewise
	stopped  bool     // the worker ended after Ctrl-C
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

// play runs a block: commands with their output, and lines that the worker prints. Ctrl-C ends the worker.
func (s *shells) play(t *testing.T, block string) {
	t.Helper()
	shown, commands := strings.CutPrefix(block, "$ ")
	if !commands {
		before, after, stop := strings.Cut(block, "^C\n")
		s.worker.expect(t, before)
		if stop {
			s.stop(t, after)
		}
		return
	}
	for one := range strings.SplitSeq(shown, "\n$ ") {
		command, output, _ := strings.Cut(strings.TrimSuffix(one, "\n"), "\n")
		if command == workerCommand {
			s.worker = s.start(t, command)
			s.worker.expect(t, output)
			continue
		}
		out, err := s.command(t.Context(), command).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v", command, err)
		}
		compare(t, command, strings.TrimSuffix(string(out), "\n"), output)
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

// command returns a command line as a shell runs it, in the workspace, with the server's address in
// AZURE_STORAGE because the usual port may be in use.
func (s *shells) command(ctx context.Context, line string) *exec.Cmd {
	c := exec.CommandContext(ctx, "sh", "-c", "exec "+line)
	c.Env = append(os.Environ(), "GOWORK=", "PATH="+s.bin+string(filepath.ListSeparator)+os.Getenv("PATH"), "AZURE_STORAGE="+s.location)
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
	for want := range strings.Lines(lines) {
		want = strings.TrimSuffix(want, "\n")
		if !p.lines.Scan() {
			t.Fatalf("output of the worker: got its end, want %q", want)
		}
		compare(t, "the worker", p.lines.Text(), want)
	}
}

// varying matches the parts of the output that differ from run to run.
var varying = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\d{4}/\d\d/\d\d \d\d:\d\d:\d\d`), "TIME"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "MESSAGE"},
	{regexp.MustCompile(`since \S+Z, \d+s ago`), "since TIME, AGE ago"},
	{regexp.MustCompile(`(?m)^(MESSAGE  )\d+s `), "${1}AGE "},
	{regexp.MustCompile(`requests=\d+`), "requests=N"},
}

// compare compares the output of a command with a page, where an ellipsis stands for any text.
func compare(t *testing.T, command, got, want string) {
	t.Helper()
	for _, v := range varying {
		got, want = v.pattern.ReplaceAllString(got, v.name), v.pattern.ReplaceAllString(want, v.name)
	}
	pattern := strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*")
	if !regexp.MustCompile("^" + pattern + "$").MatchString(got) {
		t.Errorf("output of %s: got\n%s\nwant, from the page\n%s", command, got, want)
	}
}

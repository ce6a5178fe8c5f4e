package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// build builds programs and returns the folder with them.
func (h *harness) build(ctx context.Context, packages ...string) (dir string, err error) {
	if dir, err = h.folder("bin"); err != nil {
		return "", err
	}
	args := append([]string{"build", "-o", dir + string(filepath.Separator)}, packages...)
	if output, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", strings.Join(packages, " and "), err, output)
	}
	return dir, nil
}

// program is a running program.
type program struct {
	name  string
	cmd   *exec.Cmd
	lines *bufio.Scanner
	ended bool
}

// startProgram starts a program. The end of the context interrupts it.
func startProgram(ctx context.Context, name, path string, args ...string) (*program, error) {
	p := &program{name: name, cmd: exec.CommandContext(ctx, path, args...)}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(os.Interrupt) }
	p.cmd.WaitDelay = 10 * time.Second
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.lines = bufio.NewScanner(out)
	return p, p.cmd.Start()
}

// until reads lines until so many match, and returns the last match.
func (p *program) until(pattern *regexp.Regexp, times int) (string, error) {
	for p.lines.Scan() {
		if found := pattern.FindString(strings.TrimSpace(p.lines.Text())); found != "" {
			if times--; times == 0 {
				return found, nil
			}
		}
	}
	return "", fmt.Errorf("%s ended early", p.name)
}

// connectionString is what millrace serve prints.
var connectionString = regexp.MustCompile(`\S*QueueEndpoint=\S*`)

// wait waits for the end of the program.
func (p *program) wait() error {
	if p.ended {
		return nil
	}
	p.ended = true
	for p.lines.Scan() { // or it waits for a reader
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// stop interrupts the program and waits for its end.
func (p *program) stop() error {
	_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended
	return p.wait()
}

// processorTime returns the processor time that the threads of the program have used, which Linux counts in
// nanoseconds; 0 on other systems.
func (p *program) processorTime() (used time.Duration, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	for _, path := range threads {
		text, failed := os.ReadFile(path)
		if errors.Is(failed, os.ErrNotExist) {
			continue // the thread has ended
		}
		first, _, _ := strings.Cut(string(text), " ")
		n, wrong := strconv.ParseInt(first, 10, 64)
		used += time.Duration(n)
		err = errors.Join(err, failed, wrong)
	}
	return used, err
}

package killtest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// Process is a process of this test binary.
type Process struct {
	command *exec.Cmd
	reading sync.WaitGroup
}

// childVariable tells a test binary that Start has started it.
const childVariable = "MILLRACE_KILLTEST_CHILD"

// A process ends when its standard input does, so that a test binary that is killed leaves none behind.
func init() {
	if os.Getenv(childVariable) == "" {
		return
	}
	go func() { // runs as long as the process
		_, _ = io.Copy(io.Discard, os.Stdin) // however it ended
		os.Exit(1)                           //nolint:forbidigo // this process has no other main
	}()
}

// Start starts the test binary without any test, with variables in its environment that tell its
// TestMain what to do, and sends the lines of its output to a channel.
func Start(t *testing.T, output chan<- string, variables ...string) *Process {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	p := &Process{command: exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")}
	p.command.Env = append(os.Environ(), childVariable+"=1")
	p.command.Env = append(p.command.Env, variables...)
	p.command.Stderr = os.Stderr
	out, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = p.command.StdinPipe(); err != nil { // it is open as long as this process lives
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	p.reading.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			output <- lines.Text()
		}
	})
	return p
}

// Kill kills the process, like a machine failure, and waits until all of its output has been sent.
func (p *Process) Kill(t *testing.T) {
	t.Helper()
	if err := p.command.Process.Kill(); err != nil {
		t.Error(err)
	}
	p.reading.Wait()
	_ = p.command.Wait() // it was killed
}

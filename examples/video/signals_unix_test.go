//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Ctrl-C ends the program: it says what is left and has status 1.
func TestCtrlCEndsTheProgram(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, failures bytes.Buffer
	c := exec.CommandContext(t.Context(), program, "-videos", "200")
	c.Env = append(os.Environ(), asVideo+"=1")
	started, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout = &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 1)
	if _, err := started.Read(first); err != nil { // the warning about the upload that is broken: it works
		t.Fatal(err)
	}
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_, _ = failures.ReadFrom(started)
	_ = c.Wait()
	if c.ProcessState.ExitCode() != 1 || !strings.Contains(failures.String(), "video: stopped with ") || !strings.Contains(out.String(), "formats made") {
		t.Errorf("got %v, %q and %q; want status 1, the report, and how many are left", c.ProcessState, out.String(), failures.String())
	}
}

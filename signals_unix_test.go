//go:build unix

package millrace

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// childVariable makes the test binary the program under test.
const childVariable = "MILLRACE_TEST_CHILD"

// child is a program with one runner that prints its state.
func child() int {
	err := Run(context.Background(), newRunner(func(ctx context.Context, halted <-chan struct{}) error {
		fmt.Println("running")
		<-ctx.Done()
		fmt.Println("draining")
		if os.Getenv(childVariable) == "drains" {
			return nil
		}
		<-halted
		fmt.Println("halted")
		if os.Getenv(childVariable) == "halts" {
			return nil
		}
		select {} // never stops; the third signal ends the process
	}))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("returned")
	return 0
}

// TestSignalsDrainHaltAndEndAProcess sends real signals to a real process and reads its output.
// The process prints a line when it is ready for the next signal, so no step waits for a fixed
// time.
func TestSignalsDrainHaltAndEndAProcess(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	for _, c := range []struct {
		kind       string
		signals    []os.Signal
		wantLines  []string
		wantStatus string
	}{
		{"drains", []os.Signal{syscall.SIGTERM}, []string{"running", "draining", "returned"}, "exit status 0"},
		{"drains", []os.Signal{os.Interrupt}, []string{"running", "draining", "returned"}, "exit status 0"},
		{"halts", []os.Signal{os.Interrupt, os.Interrupt}, []string{"running", "draining", "halted", "returned"}, "exit status 0"},
		{"hangs", []os.Signal{os.Interrupt, os.Interrupt, os.Interrupt}, []string{"running", "draining", "halted"}, "signal: interrupt"},
	} {
		t.Run(fmt.Sprint(c.kind, c.signals), func(t *testing.T) {
			t.Parallel()
			program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
			program.Env = append(os.Environ(), childVariable+"="+c.kind)
			out, err := program.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := program.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for i, want := range c.wantLines {
				if !lines.Scan() || lines.Text() != want {
					t.Fatalf("line %d: got %q, want %q", i+1, lines.Text(), want)
				}
				if i < len(c.signals) {
					if err := program.Process.Signal(c.signals[i]); err != nil {
						t.Fatal(err)
					}
				}
			}
			rest, _ := io.ReadAll(out)
			err = program.Wait()
			status := "exit status 0"
			if err != nil {
				status = err.Error()
			}
			if status != c.wantStatus {
				t.Errorf("status: got %q, want %q", status, c.wantStatus)
			}
			if len(rest) != 0 {
				t.Errorf("further output: got %q, want none", rest)
			}
		})
	}
}

package millrace

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
)

// childOfBubbleTest is set in the process that runs the bubble.
const childOfBubbleTest = "MILLRACE_TEST_ALONE"

// The goroutines of os/signal must not belong to a bubble. Only a new process has not started
// them yet, so the test starts itself as one.
func TestRunIsTheFirstToUseSignalsInABubble(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	if os.Getenv(childOfBubbleTest) == "" {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=20s")
		child.Env = append(os.Environ(), childOfBubbleTest+"=1")
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("child process: got error %v, want nil\n%.2000s", err, out)
		}
		return
	}
	synctest.Test(t, func(t *testing.T) {
		returnsAtOnce := newRunner(func(context.Context, <-chan struct{}) error { return nil })
		if err := Run(t.Context(), returnsAtOnce); err != nil {
			t.Errorf("Run: got error %v, want nil", err)
		}
	})
}

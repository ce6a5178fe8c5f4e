package millrace

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
)

// aloneInABubble makes the test binary run only one test.
const aloneInABubble = "MILLRACE_TEST_ALONE"

// The goroutines of os/signal must not belong to a bubble. Only a new process has not started
// them yet.
func TestRunIsTheFirstToUseSignalsInABubble(t *testing.T) {
	if os.Getenv(aloneInABubble) == "" {
		alone := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=20s")
		alone.Env = append(os.Environ(), aloneInABubble+"=1")
		if out, err := alone.CombinedOutput(); err != nil {
			t.Errorf("%v\n%.2000s", err, out)
		}
		return
	}
	synctest.Test(t, func(t *testing.T) {
		ended := newRunner(func(ctx context.Context, _ <-chan struct{}) error { return nil })
		if err := Run(t.Context(), ended); err != nil {
			t.Error(err)
		}
	})
}

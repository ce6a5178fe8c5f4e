package listener

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The time that a platform must allow after its signal is what the comment of Options.Grace
// says.
func TestRunEndsWithinGraceSettleTimeoutAndTwoSeconds(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		release := make(chan struct{})
		o := &Options[job]{Grace: 20 * time.Second, SettleTimeout: 5 * time.Second}
		b.run(New(b.queue, func(context.Context, *Message[job]) error { <-release; return nil }, o))
		after(3 * time.Second)
		stopped := time.Now()
		b.stop()
		if err := <-b.done; !errors.As(err, new(*AbandonedError)) {
			t.Errorf("got %v, want the name of the handler that does not stop", err)
		}
		if took := time.Since(stopped); took > o.Grace+o.SettleTimeout+2*time.Second {
			t.Errorf("it took %v", took)
		}
		close(release)
		synctest.Wait()
	})
}

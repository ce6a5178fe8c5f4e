package listener

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The comment of Options.Grace documents how long a platform must wait after its signal.
func TestRunEndsWithinGraceSettleTimeoutAndTwoSeconds(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		release := make(chan struct{})
		o := &Options[job]{Grace: 20 * time.Second, Lease: LeaseOptions{SettleTimeout: 5 * time.Second}}
		b.run(New(b.queue, func(context.Context, *Message[job]) error { <-release; return nil }, o))
		advance(3 * time.Second)
		stopped := time.Now()
		b.stop()
		if err := <-b.done; !errors.As(err, new(*AbandonedError)) {
			t.Errorf("got error %v, want an *AbandonedError", err)
		}
		if took := time.Since(stopped); took > o.Grace+o.Lease.SettleTimeout+2*time.Second {
			t.Errorf("got a duration of %v; want at most %v", took, o.Grace+o.Lease.SettleTimeout+2*time.Second)
		}
		close(release)
		synctest.Wait()
	})
}

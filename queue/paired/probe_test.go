package paired_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/paired"
)

// the primary queue is probed with the next real send when the time has come, one at a time, and sends
// return at its first success.
func TestTheNextSendProbesThePrimary(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, ProbeInterval: time.Minute})
		b.failOver()
		b.west.called("send")
		time.Sleep(time.Minute - 1)
		b.sends("too early", "east")
		if n := b.west.called("send"); n != 0 {
			t.Errorf("probes before their time: got %d, want 0", n)
		}
		time.Sleep(time.Nanosecond)
		b.sends("fails as a probe", "east")
		b.sends("after it", "east")
		if n := b.west.called("send"); n != 1 {
			t.Errorf("probes: got %d, want 1", n)
		}
		b.west.fault("orders", fault{})
		time.Sleep(time.Minute - 1)
		b.sends("too early again", "east")
		time.Sleep(time.Nanosecond)
		b.sends("probe", "west")
		b.is(paired.Healthy)
		b.sends("after it", "west")
		if s := b.queue.State(); s.Probes != 2 || s.Failures != 0 || s.LastError != nil {
			t.Errorf("got %+v, want 2 probes and no failures", s)
		}
	})
}

// While a probe waits for its response, the other sends go to the backlog queues.
func TestOnlyOneProbeIsInFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, ProbeInterval: time.Minute})
		b.failOver()
		b.west.called("send")
		b.west.fault("orders", fault{takes: 5 * time.Second})
		time.Sleep(time.Minute)
		probe := make(chan string, 1)
		go func() { probe <- b.send("probe") }()
		synctest.Wait()
		for range 20 {
			b.sends("other", "east")
		}
		if got := <-probe; got != "west" {
			t.Errorf("the probe went to %q, want the primary queue", got)
		}
		if n := b.west.called("send"); n != 1 {
			t.Errorf("sends to the primary queue: got %d, want the probe", n)
		}
		b.is(paired.Healthy)
	})
}

// Whatever the primary queue says to a probe, but that the message itself is at fault, its message goes to the
// backlog like the others, and the queue stays failed over.
func TestAProbeThatFailsCostsNoMessage(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"unavailable":   {unavailable, "east"},
		"unknown":       {unknown, "east"},
		"throttled":     {throttled, "east"},
		"unauthorized":  {unauthorized, "east"},
		"queue missing": {&queue.Error{Kind: queue.ErrQueueMissing}, "east"},
		"too large":     {&queue.Error{Kind: queue.ErrTooLarge}, queue.ErrTooLarge.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := setup(t, paired.Options{FailoverInterval: -1, ProbeInterval: time.Minute})
				b.failOver()
				b.west.fault("orders", fault{err: c.err})
				time.Sleep(time.Minute)
				begin := time.Now()
				b.sends("probe", c.want)
				if took := time.Since(begin); took != 0 {
					t.Errorf("the probe took %v, want no wait", took)
				}
				b.is(paired.FailedOver)
				b.west.fault("orders", fault{})
				next := "east"
				if c.want != "east" { // it told nothing: the next send probes
					next = "west"
				}
				b.sends("next", next)
			})
		})
	}
}

// A probe that hangs leaves its sender time for a backlog queue, and at most 10 s pass.
func TestAProbeThatHangsIsCutShort(t *testing.T) {
	for _, c := range []struct{ has, takes time.Duration }{{time.Hour, 10 * time.Second}, {6 * time.Second, 3 * time.Second}} {
		bubble(t, func(t *testing.T) {
			b := setup(t, paired.Options{FailoverInterval: -1, ProbeInterval: time.Minute})
			b.failOver()
			b.west.fault("orders", fault{takes: 2 * time.Hour})
			time.Sleep(time.Minute)
			ctx, cancel := context.WithTimeout(b.ctx, c.has)
			defer cancel()
			begin := time.Now()
			m, err := b.queue.Enqueue(ctx, "probe", nil)
			if err != nil || m.Queue.Account != "east" || !m.MaybeTwice || time.Since(begin) != c.takes {
				t.Errorf("with %v: got %+v and %v after %v, want it in the backlog, maybe twice, after %v", c.has, m, err, time.Since(begin), c.takes)
			}
		})
	}
}

// When no send comes, the properties are read instead, after two intervals; they add no message.
func TestWithoutSendsThePropertiesAreRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, ProbeInterval: time.Minute})
		b.failOver()
		b.west.fault("orders", fault{err: unavailable, all: true})
		b.west.called("")
		time.Sleep(2*time.Minute - 1)
		if n := b.west.called("properties"); n != 0 {
			t.Errorf("readings before their time: got %d, want 0", n)
		}
		time.Sleep(2 * time.Minute)
		if n := b.west.called("properties"); n != 1 {
			t.Errorf("readings after two intervals: got %d, want 1", n)
		}
		b.is(paired.FailedOver)
		b.west.fault("orders", fault{})
		time.Sleep(2 * time.Minute)
		b.is(paired.Healthy)
		if got := b.texts(b.west); len(got) != 0 {
			t.Errorf("messages in the primary queue: got %q, want none", got)
		}
		time.Sleep(time.Hour)
		if n := b.west.called("properties"); n != 1 {
			t.Errorf("readings since: got %d, want the one that succeeded", n)
		}
		b.sends("after", "west")
	})
}

// Sends that probe make readings needless.
func TestSendsThatProbeKeepReadingsAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, ProbeInterval: time.Minute})
		b.failOver()
		b.west.called("")
		for range 100 {
			time.Sleep(time.Minute)
			b.sends("probe", "east")
		}
		if n := b.west.called("properties"); n != 0 {
			t.Errorf("readings: got %d, want 0", n)
		}
	})
}

// A queue whose properties can be read but which does not accept fails over again with the first failure;
// one that accepts has the whole interval again.
func TestAReturnByAReadingIsOnTrial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{ProbeInterval: time.Minute})
		b.failOver() // sends fail, readings do not
		time.Sleep(2 * time.Minute)
		b.is(paired.Healthy)
		b.sends("at once", "east")
		time.Sleep(2 * time.Minute)
		b.is(paired.Healthy)
		b.west.fault("orders", fault{takes: time.Hour})
		begin := time.Now()
		b.sends("hangs", "east")
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("a send that hangs took %v, want it cut short after 10s", took)
		}
		time.Sleep(2 * time.Minute)
		b.is(paired.Healthy)
		b.west.fault("orders", fault{})
		b.sends("accepted", "west")
		b.west.fault("orders", fault{err: unavailable})
		b.fails("the interval runs")
		b.is(paired.Failing)
	})
}

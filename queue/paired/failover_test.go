package paired_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/paired"
)

// sends fail over with the first failure at which the interval is over, and not a moment before.
func TestSendsFailOverWhenTheIntervalHasPassed(t *testing.T) {
	for name, err := range map[string]error{"unavailable": unavailable, "no response": unknown} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := setup(t, paired.Options{FailoverInterval: time.Minute})
				b.sends("1", "west")
				b.west.fault("orders", fault{err: err})
				b.fails("2")
				b.is(paired.Failing)
				time.Sleep(time.Minute - 1)
				b.fails("3")
				b.is(paired.Failing)
				time.Sleep(1)
				b.sends("4", "east")
				b.is(paired.FailedOver)
				b.sends("5", "east")
				s := b.queue.State()
				if s.Failures != 3 || s.Diverted != 2 || s.Failovers != 1 || !errors.Is(s.LastError, err) || time.Since(s.Since) != 0 {
					t.Errorf("got %+v, want 3 failures, 2 diverted, 1 failover just now", s)
				}
				if got := b.west.called("send"); got != 4 {
					t.Errorf("sends to the primary queue: got %d, want 4", got)
				}
			})
		})
	}
}

// the default interval is 10 s.
func TestTheIntervalDefaultsToTenSeconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{})
		b.west.fault("orders", fault{err: unavailable})
		b.fails("1")
		time.Sleep(10*time.Second - 1)
		b.fails("2")
		time.Sleep(1)
		b.sends("3", "east")
	})
}

// with a negative interval the first failure that counts is enough, and its message is not lost.
func TestANegativeIntervalFailsOverAtOnce(t *testing.T) {
	for name, err := range map[string]error{"unavailable": unavailable, "no response": unknown} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := setup(t, paired.Options{FailoverInterval: -1})
				b.west.fault("orders", fault{err: err})
				b.sends("1", "east")
				b.is(paired.FailedOver)
			})
		})
	}
}

// a success a moment before the interval is over starts it anew.
func TestASuccessJustBeforeTheEndStartsTheIntervalAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: time.Minute})
		for range 3 {
			b.west.fault("orders", fault{err: unavailable})
			b.fails("before")
			time.Sleep(time.Minute - 1)
			b.west.fault("orders", fault{})
			b.sends("success", "west")
			b.is(paired.Healthy)
			time.Sleep(1)
		}
		b.west.fault("orders", fault{err: unavailable})
		b.fails("first of a new row")
		time.Sleep(time.Minute - 1)
		b.fails("still")
		time.Sleep(1)
		b.sends("over", "east")
	})
}

// time in which nobody sends fails nothing over, however long, but two failures in a row with the
// interval between them do.
func TestSilenceFailsNothingOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{})
		b.west.fault("orders", fault{err: unavailable})
		b.fails("1")
		time.Sleep(time.Hour)
		b.is(paired.Failing)
		b.west.fault("orders", fault{})
		b.sends("2", "west")
		b.west.fault("orders", fault{err: unavailable})
		b.fails("3")
		time.Sleep(time.Hour)
		b.sends("4", "east")
	})
}

// errors that say something of the message, of the credentials or of the queue's existence never
// fail over, whatever the interval, and the sender gets them.
func TestTheseErrorsNeverFailOver(t *testing.T) {
	for name, err := range map[string]error{
		"unauthorized":        unauthorized,
		"invalid":             &queue.Error{Kind: queue.ErrInvalid, Status: 400},
		"too large":           &queue.Error{Kind: queue.ErrTooLarge, Status: 413},
		"queue missing":       &queue.Error{Kind: queue.ErrQueueMissing, Status: 404},
		"queue being deleted": &queue.Error{Kind: queue.ErrQueueBeingDeleted, Status: 409},
		"none of ours":        errors.New("none of ours"),
		"both":                errors.Join(unauthorized, unavailable),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := setup(t, paired.Options{FailoverInterval: -1})
				b.east.called("")
				b.west.fault("orders", fault{err: err})
				for range 100 {
					if _, got := b.queue.Enqueue(b.ctx, "text", nil); !errors.Is(got, err) {
						t.Fatalf("got %v, want %v", got, err)
					}
					time.Sleep(time.Minute)
				}
				b.is(paired.Healthy)
				if n := b.east.called(""); n != 0 {
					t.Errorf("requests to the secondary account: got %d, want 0", n)
				}
			})
		})
	}
}

// a sender that gives up says nothing of the queue; one whose time is over does.
func TestOnlyADeadlineCountsNotACancel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1})
		b.west.fault("orders", fault{takes: time.Hour})
		ctx, cancel := context.WithCancel(b.ctx)
		time.AfterFunc(time.Second, cancel)
		if _, err := b.queue.Enqueue(ctx, "cancelled", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want what the primary queue said", err)
		}
		b.is(paired.Healthy)
		late, cancel := context.WithTimeout(b.ctx, time.Second)
		defer cancel()
		if _, err := b.queue.Enqueue(late, "late", nil); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("got %v, want what the primary queue said", err)
		}
		b.is(paired.FailedOver)
	})
}

// a busy service is waited for 10 s and sent to again, within the context of the send, and never
// failed over.
func TestABusyPrimaryIsSentToAgainAfterTenSeconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1})
		b.east.called("")
		b.west.fault("orders", fault{err: throttled})
		time.AfterFunc(25*time.Second, func() { b.west.fault("orders", fault{}) })
		begin := time.Now()
		b.sends("patient", "west")
		if took := time.Since(begin); took != 30*time.Second {
			t.Errorf("the send took %v, want 30s", took)
		}
		if n := b.west.called("send"); n != 4 {
			t.Errorf("sends: got %d, want 4", n)
		}

		b.west.fault("orders", fault{err: throttled})
		ctx, cancel := context.WithTimeout(b.ctx, 25*time.Second)
		defer cancel()
		begin = time.Now()
		if _, err := b.queue.Enqueue(ctx, "in a hurry", nil); !errors.Is(err, queue.ErrThrottled) {
			t.Errorf("got %v, want %v", err, queue.ErrThrottled)
		}
		if took := time.Since(begin); took != 25*time.Second {
			t.Errorf("the send took %v, want its 25s", took)
		}
		if n := b.west.called("send"); n != 3 {
			t.Errorf("sends: got %d, want 3", n)
		}
		ctx, cancel = context.WithTimeout(b.ctx, 20*time.Second) // ends with a wait
		defer cancel()
		if _, err := b.queue.Enqueue(ctx, "to the moment", nil); !errors.Is(err, queue.ErrThrottled) {
			t.Errorf("got %v, want %v", err, queue.ErrThrottled)
		}
		b.is(paired.Healthy)
		if n := b.east.called(""); n != 0 {
			t.Errorf("requests to the secondary account: got %d, want 0", n)
		}
	})
}

// a busy primary queue does not end the interval, and does not fail over at its end.
func TestABusyPrimaryNeitherEndsNorCompletesTheInterval(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: time.Minute})
		b.west.fault("orders", fault{err: unavailable})
		b.fails("1")
		b.west.fault("orders", fault{err: throttled})
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(b.ctx, time.Second)
		defer cancel()
		if _, err := b.queue.Enqueue(ctx, "2", nil); !errors.Is(err, queue.ErrThrottled) {
			t.Errorf("got %v, want %v", err, queue.ErrThrottled)
		}
		b.is(paired.Failing)
		b.west.fault("orders", fault{err: unavailable})
		b.sends("3", "east")
	})
}

// who waits for a busy primary queue goes to a backlog queue when others have failed over meanwhile.
func TestAWaitForABusyPrimaryEndsInTheBacklogAfterAFailover(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1})
		b.west.fault("orders", fault{err: throttled})
		went := make(chan string, 1)
		go func() { went <- b.send("waits") }()
		synctest.Wait()
		b.west.fault("orders", fault{err: unavailable})
		b.sends("fails over", "east")
		if got := <-went; got != "east" {
			t.Errorf("the waiting message went to %q, want the backlog", got)
		}
	})
}

// Issue: the primary queue is probed with the next real send when the time has come, one at a time, and sends
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
		time.Sleep(1)
		b.sends("fails as a probe", "east")
		b.sends("after it", "east")
		if n := b.west.called("send"); n != 1 {
			t.Errorf("probes: got %d, want 1", n)
		}
		b.west.fault("orders", fault{})
		time.Sleep(time.Minute - 1)
		b.sends("too early again", "east")
		time.Sleep(1)
		b.sends("probe", "west")
		b.is(paired.Healthy)
		b.sends("after it", "west")
		if s := b.queue.State(); s.Probes != 2 || s.Failures != 0 || s.LastError != nil {
			t.Errorf("got %+v, want 2 probes and no failures", s)
		}
	})
}

// Issue: while a probe waits for its response, the other sends go to the backlog queues.
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

// While the primary queue fails, a request to it gets the interval and no more, so that the failover does not wait
// for those that hang.
func TestARequestToAFailingPrimaryIsCutShort(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{})
		b.west.fault("orders", fault{err: unavailable})
		b.fails("1")
		b.west.fault("orders", fault{takes: time.Hour, all: true})
		begin := time.Now()
		b.sends("2", "east")
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("it took %v, want the interval, 10s", took)
		}
		// The end of our time is not the end of the caller's.
		b.east.fault("", fault{err: unavailable})
		time.Sleep(time.Hour)
		_, err := b.queue.Enqueue(b.ctx, "3", nil)
		if !errors.Is(err, paired.ErrBothDown) || !errors.Is(err, queue.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want both down, of unknown outcome, without a deadline of the caller", err)
		}
	})
}

// A healthy queue is not cut short: the interval says nothing of how long a send may take.
func TestAHealthyPrimaryMayBeSlow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: time.Second})
		b.west.fault("orders", fault{takes: time.Hour})
		b.sends("slow", "west")
		b.is(paired.Healthy)
	})
}

// Issue: when no send comes, the properties are read instead, after two intervals; they add no message.
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

// Flapping: alternating successes and failures never fail over with an interval; at once, each failure does,
// and the probe interval bounds how often.
func TestFlapping(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{})
		for range 50 {
			b.west.fault("orders", fault{err: unavailable})
			for range 9 {
				b.fails("down")
				time.Sleep(time.Second)
			}
			b.west.fault("orders", fault{})
			b.sends("up", "west")
		}
		if s := b.queue.State(); s.Failovers != 0 || s.Status != paired.Healthy {
			t.Errorf("got %+v, want no failover", s)
		}
	})
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, ProbeInterval: 10 * time.Second})
		for i := range 100 { // every second another state
			b.west.fault("orders", fault{})
			if i%2 == 0 {
				b.west.fault("orders", fault{err: unavailable})
			}
			if got := b.send("text"); got != "east" && got != "west" {
				t.Fatal(got)
			}
			time.Sleep(time.Second)
		}
		// Failures come at even seconds, and so do probes: 0 fails over, 10, 20 … are probes that fail.
		if s := b.queue.State(); s.Failovers != 1 || s.Probes != 9 {
			t.Errorf("got %+v, want one failover and 9 probes", s)
		}
	})
}

// A failure of a request that began before the last return says nothing of the time since.
func TestALateFailureOfTheOutageBeforeDoesNotCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, ProbeInterval: time.Minute})
		b.west.fault("orders", fault{err: unknown, takes: 2 * time.Minute})
		results := make(chan string, 10)
		for i := range 10 {
			go func() { results <- b.send(fmt.Sprintf("late %d", i)) }()
		}
		synctest.Wait()
		b.failOver()
		b.west.fault("orders", fault{})
		time.Sleep(time.Minute)
		b.sends("probe", "west")
		for range 10 {
			if got := <-results; got == "west" || got == "east" {
				t.Errorf("a late failure went to %s, want it returned: nobody knows what became of it", got)
			}
		}
		b.is(paired.Healthy)
		if s := b.queue.State(); s.Failovers != 1 {
			t.Errorf("got %+v, want one failover", s)
		}
	})
}

// each queue fails over alone.
func TestEachQueueFailsOverAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1})
		b.ok(b.west.queue("mails").Create(b.ctx, nil))
		mails := paired.New(b.west.queue("mails"), b.east.queue("orders"), nil) // shares the backlog queues
		defer mails.Close()
		b.ok(mails.Pair(b.ctx))
		b.failOver()
		if m, err := mails.Enqueue(b.ctx, "text", nil); err != nil || m.Queue != (queue.Name{Account: "west", Queue: "mails"}) {
			t.Errorf("got %+v and %v, want it in the other primary queue", m, err)
		}
		if got := mails.State().Status; got != paired.Healthy {
			t.Errorf("status: got %v, want %v", got, paired.Healthy)
		}
	})
}

// The statuses are words of logs and JSON.
func TestStatusesHaveNames(t *testing.T) {
	var got []string
	for s := paired.Healthy; s <= paired.FailedOver+1; s++ {
		got = append(got, s.String())
	}
	if want := []string{"healthy", "failing", "failed over", "unknown"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

package paired_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
				time.Sleep(time.Nanosecond)
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
		time.Sleep(time.Nanosecond)
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
			time.Sleep(time.Nanosecond)
		}
		b.west.fault("orders", fault{err: unavailable})
		b.fails("first of a new row")
		time.Sleep(time.Minute - 1)
		b.fails("still")
		time.Sleep(time.Nanosecond)
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
		if m, err := b.queue.Enqueue(late, "late", nil); err != nil || m.Queue.Account != "east" || !m.MaybeTwice {
			t.Errorf("got %+v and %v, want it in the backlog, maybe twice", m, err)
		}
		b.is(paired.FailedOver)
	})
}

// a message that a busy service refused is sent again after 10 to 15 s, within the context of the send, and
// never failed over.
func TestARefusedMessageIsSentAgainAfterTenSeconds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1})
		b.east.called("")
		b.west.fault("orders", fault{err: throttled})
		time.AfterFunc(19*time.Second, func() { b.west.fault("orders", fault{}) })
		begin := time.Now()
		b.sends("patient", "west")
		if took := time.Since(begin); took < 20*time.Second || took > 30*time.Second {
			t.Errorf("the send took %v, want 20 to 30s", took)
		}
		if n := b.west.called("send"); n != 3 {
			t.Errorf("sends: got %d, want 3", n)
		}

		b.west.fault("orders", fault{err: throttled})
		ctx, cancel := context.WithTimeout(b.ctx, 25*time.Second)
		defer cancel()
		begin = time.Now()
		if _, err := b.queue.Enqueue(ctx, "in a hurry", nil); !errors.Is(err, queue.ErrThrottled) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v and %v", err, queue.ErrThrottled, context.DeadlineExceeded)
		}
		if took := time.Since(begin); took != 25*time.Second {
			t.Errorf("the send took %v, want its 25s", took)
		}
		if n := b.west.called("send"); n != 3 {
			t.Errorf("sends: got %d, want 3", n)
		}
		ctx, cancel = context.WithTimeout(b.ctx, 20*time.Second) // ends with a wait
		defer cancel()
		if _, err := b.queue.Enqueue(ctx, "to the moment", nil); !errors.Is(err, queue.ErrThrottled) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v and %v", err, queue.ErrThrottled, context.DeadlineExceeded)
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

// the interval begins with the oldest request without an answer. A success ends it, even of a request that began
// later.
func TestTheIntervalBeginsWithTheOldestRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: 5 * time.Second})
		b.west.fault("orders", fault{takes: 5*time.Second - 1})
		b.sends("slow", "west")
		b.is(paired.Healthy)
		b.west.fault("orders", fault{takes: time.Hour})
		begin := time.Now()
		b.sends("hangs", "east")
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("it took %v, want the interval, 5s", took)
		}
		b.is(paired.FailedOver)
	})
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: 5 * time.Second})
		b.west.fault("orders", fault{takes: time.Hour})
		went := make(chan string, 1)
		go func() { went <- b.send("hangs") }()
		time.Sleep(time.Second)
		b.west.fault("orders", fault{})
		b.sends("later", "west")
		if got := <-went; got != "east" {
			t.Errorf("the message that hangs went to %q, want the backlog", got)
		}
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
			if got := <-results; got != "east" {
				t.Errorf("a late failure went to %s, want the backlog: its own attempt failed for the interval", got)
			}
		}
		b.is(paired.Healthy)
		if s := b.queue.State(); s.Failovers != 1 {
			t.Errorf("got %+v, want one failover", s)
		}
	})
}

// The same holds for a request that began during the outage: one that has no alternative, because it is too large for
// the backlog.
func TestALateFailureOfDuringTheOutageDoesNotCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1, ProbeInterval: time.Minute})
		b.failOver()
		b.west.fault("orders", fault{err: unknown, takes: 2 * time.Minute, all: true})
		late := make(chan error, 1)
		go func() {
			_, err := b.queue.Enqueue(b.ctx, strings.Repeat("x", queue.MaxText), nil)
			late <- err
		}()
		synctest.Wait()
		b.west.fault("orders", fault{})
		time.Sleep(time.Minute)
		b.sends("probe", "west")
		if err := <-late; !errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("got %v, want what the primary queue said", err)
		}
		b.is(paired.Healthy)
	})
}

// each queue fails over alone.
func TestEachQueueFailsOverAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1})
		b.ok(b.west.queue("mails").Create(b.ctx, nil))
		mails := must(paired.New(b.west.queue("mails"), b.east.queue("orders"), nil)) // shares the backlog queues
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

// The state has what the primary queue said last, also what does not count, until a send succeeds.
func TestTheStateHasTheLastError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{})
		for _, err := range []error{unauthorized, unavailable, unknown, unauthorized} {
			b.west.fault("orders", fault{err: err})
			b.fails("text")
			if got := b.queue.State().LastError; !errors.Is(got, err) {
				t.Errorf("last error: got %v, want %v", got, err)
			}
		}
		b.west.fault("orders", fault{err: &queue.Error{Kind: queue.ErrTooLarge}})
		b.fails("the message's fault")
		if got := b.queue.State().LastError; !errors.Is(got, unauthorized) {
			t.Errorf("last error: got %v, want %v", got, unauthorized)
		}
		b.west.fault("orders", fault{})
		b.sends("text", "west")
		if got := b.queue.State().LastError; got != nil {
			t.Errorf("last error after a success: got %v, want none", got)
		}
	})
}

// However short the interval, a request to a failing primary queue has a second.
func TestAShortIntervalLeavesRequestsTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: 10 * time.Millisecond})
		b.west.fault("orders", fault{err: unavailable})
		b.fails("starts the interval")
		b.west.fault("orders", fault{takes: 900 * time.Millisecond})
		b.sends("slow", "west")
		b.is(paired.Healthy)
	})
}

// unsent is a queue that waits for a token, sends nothing without it, and says so.
type unsent struct{ queue.Queue }

func (q unsent) Enqueue(ctx context.Context, _ string, _ *queue.EnqueueOptions) (queue.Message, error) {
	<-ctx.Done()
	return queue.Message{}, &queue.Error{Op: "enqueue", Queue: q.Name(), Detail: "nothing was sent", Err: ctx.Err()}
}

// A send that is cancelled before anything was sent says nothing of the queue.
func TestASendThatWasNeverSentSaysNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := unpaired(t, paired.Options{})
		q := must(paired.New(unsent{b.west.queue("orders")}, b.east.queue("orders"), &paired.Options{FailoverInterval: -1}))
		defer q.Close()
		b.ok(q.Pair(b.ctx))
		ctx, cancel := context.WithCancel(b.ctx)
		time.AfterFunc(time.Second, cancel)
		if _, err := q.Enqueue(ctx, "text", nil); !errors.Is(err, context.Canceled) || errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("got %v, want what the primary queue said", err)
		}
		if s := q.State(); s.Status != paired.Healthy || s.LastError != nil {
			t.Errorf("got %+v, want it healthy and without an error", s)
		}
	})
}

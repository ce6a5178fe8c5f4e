package millracetest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/millracetest"
	"github.com/millrace/millrace/poison"
)

type handler = func(context.Context, *listener.Message[Order]) error

func returning(err error) handler {
	return func(context.Context, *listener.Message[Order]) error { return err }
}

// both runs a test inside and outside of a bubble.
func both(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Run("bubble", func(t *testing.T) { synctest.Test(t, f) })
	t.Run("outside", f)
}

var errBroken = errors.New("broken")

func TestWorkTellsWhatBecameOfTheJob(t *testing.T) {
	panics := func(context.Context, *listener.Message[Order]) error { panic(errBroken) }
	exits := func(context.Context, *listener.Message[Order]) error { runtime.Goexit(); return nil }
	last := &listener.Options[Order]{Poison: poison.Policy{MaxAttempts: 1}}
	cases := []struct {
		name     string
		handler  handler
		options  *listener.Options[Order]
		outcome  dispatcher.Outcome
		attempts int
		delay    time.Duration // 1 s stands for what the curve says
		err      error
		reason   poison.Reason
	}{
		{"success", returning(nil), nil, dispatcher.Deleted, 0, 0, nil, ""},
		{"error", returning(errBroken), nil, dispatcher.Retried, 1, time.Second, errBroken, ""},
		{"panic", panics, nil, dispatcher.Retried, 1, time.Second, errBroken, ""},
		{"exit", exits, nil, dispatcher.Retried, 1, time.Second, nil, ""},
		{"retry", returning(dispatcher.Retry(time.Hour, errBroken)), nil, dispatcher.Retried, 1, time.Hour, errBroken, ""},
		{"retry at once", returning(dispatcher.Retry(0, errBroken)), nil, dispatcher.Retried, 1, 0, errBroken, ""},
		{"snooze", returning(dispatcher.Snooze(time.Minute)), nil, dispatcher.Snoozed, 0, time.Minute, nil, ""},
		{"snooze for no time", returning(dispatcher.Snooze(0)), nil, dispatcher.Snoozed, 0, 0, nil, ""},
		{"discard", returning(dispatcher.Discard(errBroken)), nil, dispatcher.Discarded, 0, 0, errBroken, ""},
		{"poison", returning(dispatcher.Poison(errBroken)), nil, dispatcher.Poisoned, 1, 0, errBroken, poison.ReasonRejected},
		{"last attempt", returning(errBroken), last, dispatcher.Poisoned, 1, 0, errBroken, poison.ReasonAttempts},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T) {
				r := millracetest.Work(t, c.handler, Order{ID: "7"}, c.options)
				if r.Outcome != c.outcome || r.Attempts != c.attempts || c.err != nil && !errors.Is(r.Err, c.err) {
					t.Errorf("got %v after %d attempts: %v", r.Outcome, r.Attempts, r.Err)
				}
				if clean := c.outcome == dispatcher.Deleted || c.outcome == dispatcher.Snoozed; clean != (r.Err == nil) {
					t.Errorf("the error is %v", r.Err)
				}
				if c.delay == time.Second {
					if r.Delay < 900*time.Millisecond || r.Delay > 1100*time.Millisecond {
						t.Errorf("the delay is %v, want about a second", r.Delay)
					}
				} else if r.Delay != c.delay {
					t.Errorf("the delay is %v, want %v", r.Delay, c.delay)
				}
				if (r.Poison != nil) != (c.reason != "") {
					t.Fatalf("the record is %+v", r.Poison)
				}
				if r.Poison != nil && (r.Poison.Reason != c.reason || r.Poison.Attempts != 1) {
					t.Errorf("the record is %+v", r.Poison)
				}
			})
		})
	}
}

// The handler gets the same message as from Azure.
func TestWorkGoesThroughTheRealPipeline(t *testing.T) {
	both(t, func(t *testing.T) {
		r := millracetest.Work(t, func(_ context.Context, m *listener.Message[Order]) error {
			switch {
			case m.Body.ID != "<7>" || m.ID == "" || m.Attempt != 1 || m.DequeueCount != 1:
				return fmt.Errorf("the message is %+v", m)
			case m.Head.ID == "" || m.Head.Enqueued.IsZero() || m.Inserted.IsZero():
				return fmt.Errorf("the head is %+v", m.Head)
			}
			return nil
		}, Order{ID: "<7>"}, nil)
		if r.Outcome != dispatcher.Deleted {
			t.Error(r.Err)
		}
	})
}

// The options apply: codec, format, time-out and OnError.
func TestWorkKeepsToTheOptions(t *testing.T) {
	both(t, func(t *testing.T) {
		told := make(chan error, 1)
		r := millracetest.Work(t, func(ctx context.Context, m *listener.Message[string]) error {
			if m.Body != "plain text" || m.Head != (codec.Head{}) {
				t.Errorf("the message is %+v", m)
			}
			<-ctx.Done()
			return errBroken
		}, "plain text", &listener.Options[string]{
			Codec: codec.Text(), Format: codec.Plain, Timeout: 5 * time.Millisecond,
			OnError: func(err error) { told <- err },
		})
		if r.Outcome != dispatcher.Retried || !errors.Is(r.Err, dispatcher.ErrTimeout) || !errors.Is(r.Err, errBroken) {
			t.Errorf("got %v: %v", r.Outcome, r.Err)
		}
		if err := <-told; !errors.Is(err, errBroken) {
			t.Errorf("OnError was told %v", err)
		}
	})
}

// halves is a codec that cannot decode what it encodes.
type halves struct{ codec.Codec[Order] }

func (halves) Decode([]byte) (Order, error) { return Order{}, errBroken }

func TestWorkTellsPoisonThatNoHandlerSaw(t *testing.T) {
	both(t, func(t *testing.T) {
		never := func(context.Context, *listener.Message[Order]) error { t.Error("it was handled"); return nil }
		o := &listener.Options[Order]{Codec: halves{codec.JSON[Order]()}}
		r := millracetest.Work(t, never, Order{ID: "7"}, o)
		if r.Outcome != dispatcher.Poisoned || !errors.Is(r.Err, errBroken) || r.Poison == nil || r.Poison.Reason != poison.ReasonUndecodable {
			t.Errorf("got %+v", r)
		}

		o.Poison.Keep = true
		if r = millracetest.Work(t, never, Order{ID: "7"}, o); r.Outcome != dispatcher.Kept || r.Delay != time.Hour || r.Poison != nil {
			t.Errorf("got %+v", r)
		}
	})
}

// A given poison queue gets the copy, bare if so configured.
func TestWorkPoisonsIntoTheQueueOfThePolicy(t *testing.T) {
	both(t, func(t *testing.T) {
		morgue := millracetest.Queue(t).Sibling("-morgue")
		o := &listener.Options[Order]{Poison: poison.Policy{Queue: morgue}}
		r := millracetest.Work(t, ship, Order{ID: "7"}, o)
		records := millracetest.Enqueued[poison.Record](t, morgue)
		if len(records) != 1 || r.Poison == nil || r.Poison.ID != records[0].ID {
			t.Errorf("got %+v, the queue holds %+v", r.Poison, records)
		}

		bare := millracetest.Queue(t).Sibling("-morgue")
		o.Poison = poison.Policy{Queue: bare, Bare: true}
		if r = millracetest.Work(t, ship, Order{ID: "8"}, o); r.Outcome != dispatcher.Poisoned || r.Poison != nil {
			t.Errorf("got %+v", r)
		}
		millracetest.RequireEnqueued(t, bare, Order{ID: "8"})
	})
}

// Work makes one delivery, even if the message is visible again at once.
func TestWorkRunsOnce(t *testing.T) {
	both(t, func(t *testing.T) {
		var mu sync.Mutex
		runs := 0
		millracetest.Work(t, func(context.Context, *listener.Message[Order]) error {
			mu.Lock()
			defer mu.Unlock()
			runs++
			return dispatcher.Retry(0, errBroken)
		}, Order{}, nil)
		if runs != 1 {
			t.Errorf("%d runs", runs)
		}
	})
}

// A handler may take any time.
func TestWorkRenewsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &listener.Options[Order]{Visibility: dispatcher.Fixed(10 * time.Second)}
		r := millracetest.Work(t, func(ctx context.Context, _ *listener.Message[Order]) error {
			time.Sleep(time.Minute)
			return ctx.Err()
		}, Order{}, o)
		if r.Outcome != dispatcher.Deleted {
			t.Errorf("a minute under leases of ten seconds: %v: %v", r.Outcome, r.Err)
		}
	})
}

func TestWorkSaysWhatIsWrong(t *testing.T) {
	says(t, failing(t, func(t testing.TB) {
		millracetest.Work(t, ship, Order{}, &listener.Options[Order]{BatchSize: 33})
	}), "millracetest: ", "listener of millracetest/jobs", "batch size 33")
	says(t, failing(t, func(t testing.TB) {
		millracetest.Work(t, func(context.Context, *listener.Message[chan int]) error { return nil }, make(chan int), nil)
	}), "millracetest: ", "send to millracetest/jobs", "chan int")
	says(t, failing(t, func(t testing.TB) {
		millracetest.Work(t, nil, Order{}, nil)
	}), "millracetest: ", "needs a handler")
}

// The listener logs to the output of the test.
func TestWorkLogsToTheTest(t *testing.T) {
	f := &fake{TB: t}
	millracetest.Work(f, returning(errBroken), Order{}, nil)
	says(t, f.log.String(), "delivery retried", "broken")
}

// A hook that panics ends the test, although a listener would continue.
func TestABrokenHookEndsTheTest(t *testing.T) {
	for name, o := range map[string]*listener.Options[Order]{
		"RetryDelay":       {RetryDelay: func(int, error) time.Duration { panic("no delay") }},
		"OnError":          {OnError: func(error) { panic("not told") }},
		"Observer.Started": {Observer: listener.Observer{Started: func(dispatcher.Delivery) { runtime.Goexit() }}},
	} {
		says(t, failing(t, func(t testing.TB) {
			millracetest.Work(t, func(context.Context, *listener.Message[Order]) error { return errors.New("no stock") }, Order{}, o)
		}), "hook "+name, "work_test.go")
	}
}

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

func TestWorkReturnsTheResult(t *testing.T) {
	panics := func(context.Context, *listener.Message[Order]) error { panic(errBroken) }
	exits := func(context.Context, *listener.Message[Order]) error { runtime.Goexit(); return nil }
	last := &listener.Options[Order]{Poison: poison.Policy{MaxAttempts: 1}}
	cases := []struct {
		name         string
		handler      handler
		options      *listener.Options[Order]
		wantOutcome  listener.Outcome
		wantAttempts int
		wantDelay    time.Duration // 1 s means the first delay of the curve
		wantErr      error
		wantReason   poison.Reason
	}{
		{"success", returning(nil), nil, listener.Deleted, 0, 0, nil, ""},
		{"error", returning(errBroken), nil, listener.Retried, 1, time.Second, errBroken, ""},
		{"panic", panics, nil, listener.Retried, 1, time.Second, errBroken, ""},
		{"exit", exits, nil, listener.Retried, 1, time.Second, nil, ""},
		{"retry", returning(listener.Retry(time.Hour, errBroken)), nil, listener.Retried, 1, time.Hour, errBroken, ""},
		{"retry at once", returning(listener.Retry(0, errBroken)), nil, listener.Retried, 1, 0, errBroken, ""},
		{"snooze", returning(listener.Snooze(time.Minute)), nil, listener.Snoozed, 0, time.Minute, nil, ""},
		{"snooze for no time", returning(listener.Snooze(0)), nil, listener.Snoozed, 0, 0, nil, ""},
		{"discard", returning(listener.Discard(errBroken)), nil, listener.Discarded, 0, 0, errBroken, ""},
		{"poison", returning(listener.Poison(errBroken)), nil, listener.Poisoned, 1, 0, errBroken, poison.ReasonRejected},
		{"last attempt", returning(errBroken), last, listener.Poisoned, 1, 0, errBroken, poison.ReasonAttempts},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			both(t, func(t *testing.T) {
				r := millracetest.Work(t, c.handler, Order{ID: "7"}, c.options)
				if r.Outcome != c.wantOutcome || r.Attempts != c.wantAttempts || c.wantErr != nil && !errors.Is(r.Err, c.wantErr) {
					t.Errorf("got %v after %d attempts, error %v; want %v after %d, error %v",
						r.Outcome, r.Attempts, r.Err, c.wantOutcome, c.wantAttempts, c.wantErr)
				}
				noError := c.wantOutcome == listener.Deleted || c.wantOutcome == listener.Snoozed
				if noError != (r.Err == nil) {
					t.Errorf("Err: got %v, want nil: %v", r.Err, noError)
				}
				if c.wantDelay == time.Second {
					if r.Delay < 900*time.Millisecond || r.Delay > 1100*time.Millisecond {
						t.Errorf("Delay: got %v, want about 1s", r.Delay)
					}
				} else if r.Delay != c.wantDelay {
					t.Errorf("Delay: got %v, want %v", r.Delay, c.wantDelay)
				}
				if (r.Poison != nil) != (c.wantReason != "") {
					t.Fatalf("Poison: got %+v, want one: %v", r.Poison, c.wantReason != "")
				}
				if r.Poison != nil && (r.Poison.Reason != c.wantReason || r.Poison.Attempts != 1) {
					t.Errorf("Poison: got %+v, want the reason %s after 1 attempt", r.Poison, c.wantReason)
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
				return fmt.Errorf("got message %+v, want the first delivery of <7>", m)
			case m.Job == "" || m.Enqueued.IsZero() || m.Inserted.IsZero():
				return fmt.Errorf("got delivery %+v, want a job id and times", m.Delivery)
			}
			return nil
		}, Order{ID: "<7>"}, nil)
		if r.Outcome != listener.Deleted {
			t.Error(r.Err)
		}
	})
}

// The options apply: codec, format, time-out and OnError.
func TestWorkAppliesTheOptions(t *testing.T) {
	both(t, func(t *testing.T) {
		reported := make(chan error, 1)
		r := millracetest.Work(t, func(ctx context.Context, m *listener.Message[string]) error {
			if m.Body != "plain text" || m.Job != "" || !m.Enqueued.IsZero() {
				t.Errorf("got message %+v, want the body \"plain text\" without an envelope", m)
			}
			<-ctx.Done()
			return errBroken
		}, "plain text", &listener.Options[string]{
			Codec: codec.Text(), Wire: listener.WireOptions{Format: codec.Plain}, Timeout: 5 * time.Millisecond,
			OnError: func(err error) { reported <- err },
		})
		if r.Outcome != listener.Retried || !errors.Is(r.Err, listener.ErrTimeout) || !errors.Is(r.Err, errBroken) {
			t.Errorf("got %v, error %v; want retried, ErrTimeout and %v", r.Outcome, r.Err, errBroken)
		}
		if err := <-reported; !errors.Is(err, errBroken) {
			t.Errorf("OnError: got %v, want %v", err, errBroken)
		}
	})
}

// encodeOnly is a codec that cannot decode.
type encodeOnly struct{ codec.Codec[Order] }

func (encodeOnly) Decode([]byte) (Order, error) { return Order{}, errBroken }

func TestWorkReturnsPoisonThatNoHandlerSaw(t *testing.T) {
	both(t, func(t *testing.T) {
		never := func(context.Context, *listener.Message[Order]) error { t.Error("the job was handled"); return nil }
		o := &listener.Options[Order]{Codec: encodeOnly{codec.JSON[Order]()}}
		r := millracetest.Work(t, never, Order{ID: "7"}, o)
		if r.Outcome != listener.Poisoned || !errors.Is(r.Err, errBroken) ||
			r.Poison == nil || r.Poison.Reason != poison.ReasonUndecodable {
			t.Errorf("got %+v, want poisoned as undecodable with %v", r, errBroken)
		}

		o.Poison.Keep = true
		if r = millracetest.Work(t, never, Order{ID: "7"}, o); r.Outcome != listener.Kept || r.Delay < time.Minute || r.Delay > 66*time.Second || r.Poison != nil {
			t.Errorf("with Keep: got %+v, want kept for 60…66 s without a record", r)
		}
	})
}

// A given poison queue gets the copy, bare if so configured.
func TestWorkPoisonsIntoTheQueueOfThePolicy(t *testing.T) {
	both(t, func(t *testing.T) {
		rejects := millracetest.Queue(t).Sibling("-rejects")
		o := &listener.Options[Order]{Poison: poison.Policy{Queue: rejects}}
		r := millracetest.Work(t, ship, Order{ID: "7"}, o)
		records := millracetest.Enqueued[poison.Record](t, rejects)
		if len(records) != 1 || r.Poison == nil || r.Poison.ID != records[0].ID {
			t.Errorf("got record %+v and %+v in the queue, want the same one", r.Poison, records)
		}

		bare := millracetest.Queue(t).Sibling("-rejects")
		o.Poison = poison.Policy{Queue: bare, Bare: true}
		if r = millracetest.Work(t, ship, Order{ID: "8"}, o); r.Outcome != listener.Poisoned || r.Poison != nil {
			t.Errorf("with Bare: got %+v, want poisoned without a record", r)
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
			return listener.Retry(0, errBroken)
		}, Order{}, nil)
		if runs != 1 {
			t.Errorf("got %d runs, want 1", runs)
		}
	})
}

// A handler may take any time.
func TestWorkRenewsTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &listener.Options[Order]{Lease: listener.LeaseOptions{Visibility: listener.FixedVisibility(10 * time.Second)}}
		r := millracetest.Work(t, func(ctx context.Context, _ *listener.Message[Order]) error {
			time.Sleep(time.Minute)
			return ctx.Err()
		}, Order{}, o)
		if r.Outcome != listener.Deleted {
			t.Errorf("a minute with leases of ten seconds: got %v, error %v; want deleted", r.Outcome, r.Err)
		}
	})
}

func TestWorkEndsTheTestOnInvalidArguments(t *testing.T) {
	requireParts(t, failureOf(t, func(t testing.TB) {
		millracetest.Work(t, ship, Order{}, &listener.Options[Order]{Fetch: listener.FetchOptions{BatchSize: 33}})
	}), "millracetest: ", "listener of millracetest/jobs", "Fetch.BatchSize 33")
	requireParts(t, failureOf(t, func(t testing.TB) {
		millracetest.Work(t, func(context.Context, *listener.Message[chan int]) error { return nil }, make(chan int), nil)
	}), "millracetest: ", "send to millracetest/jobs", "chan int")
	requireParts(t, failureOf(t, func(t testing.TB) {
		millracetest.Work(t, nil, Order{}, nil)
	}), "millracetest: ", "needs a handler")
}

// The listener logs to the output of the test.
func TestWorkLogsToTheTest(t *testing.T) {
	f := &fake{TB: t}
	millracetest.Work(f, returning(errBroken), Order{}, nil)
	requireParts(t, f.log.String(), "delivery retried", "broken")
}

// A hook that panics ends the test, although a listener would continue.
func TestAHookThatFailsEndsTheTest(t *testing.T) {
	for name, o := range map[string]*listener.Options[Order]{
		"RetryDelay":       {RetryDelay: func(int, error) time.Duration { panic("no delay") }},
		"OnError":          {OnError: func(error) { panic("not told") }},
		"Observer.Started": {Observer: listener.Observer{Started: func(listener.Delivery) { panic("not started") }}},
	} {
		requireParts(t, failureOf(t, func(t testing.TB) {
			millracetest.Work(t, returning(errors.New("no stock")), Order{}, o)
		}), "hook "+name, "work_test.go")
	}
}

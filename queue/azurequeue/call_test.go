package azurequeue

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// silent never responds.
func silent(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// Requirement B-01.
func TestNoResponseInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := openCanned(t, silent)
		for op, do := range operations(q) {
			start := time.Now()
			err := do(t.Context())
			if took := time.Since(start); took != 10*time.Second {
				t.Errorf("%s: duration: got %v, want 10s", op, took)
			}
			if !errors.Is(err, queue.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: got %v, want ErrOutcomeUnknown without DeadlineExceeded, which is for the caller's deadline", op, err)
			}
			if known := written(t, err, op); !strings.Contains(known.Error(), "no response within 10s") {
				t.Errorf("%s: got %v, want no response within 10s", op, known)
			}
		}
	})
}

// Requirement B-01.
func TestCallerGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := openCanned(t, silent)
		for op, do := range operations(q) {
			late, cancel := context.WithTimeout(t.Context(), time.Second)
			err := do(late)
			cancel()
			if !errors.Is(err, queue.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: got %v, want ErrOutcomeUnknown and DeadlineExceeded", op, err)
			}
			written(t, err, op)

			cause := errors.New("shutting down")
			cancelled, stop := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { stop(cause) })
			err = do(cancelled)
			if !errors.Is(err, queue.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
				t.Errorf("%s: got %v, want ErrOutcomeUnknown and Canceled", op, err)
			}
			written(t, err, op)

			// Nothing was sent, so nothing is unknown.
			err = do(cancelled)
			if errors.Is(err, queue.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
				t.Errorf("%s: got %v, want Canceled", op, err)
			}
			written(t, err, op)
		}
	})
}

// Requirement B-01: a repeated request may take longer, up to four times as long, and is one
// request each time.
func TestARepeatedRequestMayTakeLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		requests := 0
		q := openCanned(t, func(r *http.Request) (*http.Response, error) {
			requests++
			return silent(r)
		})
		for op, do := range operations(q) {
			requests = 0
			for n, want := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 40 * time.Second} {
				start := time.Now()
				err := do(retry.Repeated(t.Context(), n))
				if took := time.Since(start); took != want || requests != n+1 {
					t.Errorf("%s, repeated %d times: gave up after %v and %d requests in all, want %v and %d", op, n, took, requests, want, n+1)
				}
				if says := "no response within " + want.String(); !strings.Contains(written(t, err, op).Error(), says) {
					t.Errorf("%s, repeated %d times: error %q, want it to say %q", op, n, err, says)
				}
			}
		}
	})
}

// A time-out so long that it cannot be doubled stays as it is.
func TestATryTimeoutThatCannotBeDoubledStays(t *testing.T) {
	for _, longest := range []time.Duration{math.MaxInt64, math.MaxInt64/2 + 1, math.MaxInt64/4 + 1} {
		a := account{tryTimeout: longest}
		for n := range 4 {
			if got := a.timeout(retry.Repeated(t.Context(), n)); got < longest {
				t.Errorf("time-out %v, repeated %d times: got %v, want at least %v", longest, n, got, longest)
			}
		}
	}
}

// late is a service that needs 15 seconds for each response.
func late(respond canned) canned {
	return func(r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(15 * time.Second):
			return respond(r)
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// Requirement B-01: a service that needs longer than the time-out is given more time, so that the second try
// of a send or a poll succeeds.
func TestASlowServiceSucceedsAtTheSecondTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		put := openCanned(t, late(responding(http.StatusCreated, `<QueueMessagesList><QueueMessage><MessageId>1</MessageId><PopReceipt>r</PopReceipt></QueueMessage></QueueMessagesList>`)))
		if _, err := producer.New[int](put, nil).Send(t.Context(), 1, nil); err != nil {
			t.Errorf("send: got the error %v, want none", err)
		}
		ctx, stop := context.WithCancel(t.Context())
		polls := 0
		l := listener.New(openCanned(t, late(func(r *http.Request) (*http.Response, error) {
			polls++
			return responding(http.StatusOK, "<QueueMessagesList/>")(r)
		})), func(context.Context, *listener.Message[int]) error { return nil }, &listener.Options[int]{Logger: slog.New(slog.DiscardHandler)})
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if st := l.State(); polls != 1 || !st.Ready() {
			t.Errorf("responses to polls in 30 s: got %d, state %+v; want 1, to the second try, and Ready", polls, st)
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: got the error %v, want none", err)
		}
	})
}

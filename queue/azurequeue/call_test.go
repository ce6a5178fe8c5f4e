package azurequeue

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

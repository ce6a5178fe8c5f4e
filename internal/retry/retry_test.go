package retry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/retry"
)

var (
	errBusy    = errors.New("busy")
	errRefused = errors.New("refused")
)

// isBusy is what these tests pass as transient.
func isBusy(err error) bool { return errors.Is(err, errBusy) }

// B-17: transient errors are retried, permanent ones are not, and the caller gets the last
// error of the service.
func TestTransientFaultsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		err := retry.Do(t.Context(), "key", isBusy, func(context.Context) error {
			if tries++; tries < 4 {
				return fmt.Errorf("try %d: %w", tries, errBusy)
			}
			return nil
		})
		if err != nil || tries != 4 {
			t.Fatalf("got %v after %d tries, want success at the fourth", err, tries)
		}
	})
}

// B-17: permanent errors are not retried.
func TestPermanentFaultsAreNotRetried(t *testing.T) {
	tries := 0
	err := retry.Do(t.Context(), "key", isBusy, func(context.Context) error { tries++; return errRefused })
	if !errors.Is(err, errRefused) || tries != 1 {
		t.Fatalf("got %v after %d tries, want a refusal after one", err, tries)
	}
}

func TestTheLastErrorOutlivesTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		begin := time.Now()
		err := retry.Do(ctx, "key", isBusy, func(context.Context) error { return errBusy })
		if !errors.Is(err, errBusy) {
			t.Fatalf("got %v, want what the service said", err)
		}
		if d := time.Since(begin); d > 20*time.Second {
			t.Fatalf("gave up after %v, want within the context", d)
		}
	})
}

func TestAContextThatEndedSendsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tries := 0
	err := retry.Do(ctx, "key", isBusy, func(context.Context) error { tries++; return errBusy })
	if err == nil || tries > 1 {
		t.Fatalf("got %v after %d tries", err, tries)
	}
}

package retry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
)

// B-17: transient errors are retried, permanent ones are not, and the caller gets the last
// error of the service.
func TestTransientFaultsAreRepeated(t *testing.T) {
	for _, transient := range []error{queue.ErrThrottled, queue.ErrUnavailable, queue.ErrOutcomeUnknown} {
		t.Run(transient.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				err := retry.Do(t.Context(), "key", func(context.Context) error {
					if tries++; tries < 4 {
						return fmt.Errorf("try %d: %w", tries, transient)
					}
					return nil
				})
				if err != nil || tries != 4 {
					t.Fatalf("got %v after %d tries, want success at the fourth", err, tries)
				}
			})
		})
	}
}

// B-17: permanent errors are not retried.
func TestPermanentFaultsAreNotRetried(t *testing.T) {
	tries := 0
	err := retry.Do(t.Context(), "key", func(context.Context) error { tries++; return queue.ErrReceiptMismatch })
	if !errors.Is(err, queue.ErrLeaseLost) || tries != 1 {
		t.Fatalf("got %v after %d tries, want lease lost after one", err, tries)
	}
}

func TestTheLastErrorOutlivesTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		begin := time.Now()
		err := retry.Do(ctx, "key", func(context.Context) error { return queue.ErrThrottled })
		if !errors.Is(err, queue.ErrThrottled) {
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
	err := retry.Do(ctx, "key", func(context.Context) error { tries++; return queue.ErrThrottled })
	if err == nil || tries > 1 {
		t.Fatalf("got %v after %d tries", err, tries)
	}
}

// B-01: the context of a repeated request says how often it was sent before, whoever sent it
// first.
func TestARequestKnowsHowOftenItWasSent(t *testing.T) {
	for name, c := range map[string]struct {
		send func(ctx context.Context, op func(context.Context) error) error
		want []int
	}{
		"Do": {func(ctx context.Context, op func(context.Context) error) error {
			return retry.Do(ctx, "key", op)
		}, []int{0, 1, 2}},
		"Again": {func(ctx context.Context, op func(context.Context) error) error {
			return retry.Again(ctx, "key", queue.ErrOutcomeUnknown, op)
		}, []int{1, 2, 3}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []int
			err := c.send(t.Context(), func(ctx context.Context) error {
				if got = append(got, retry.Repeats(ctx)); len(got) < 3 {
					return queue.ErrOutcomeUnknown
				}
				return nil
			})
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%s: sent %v times before, %v; want %v and success", name, got, err, c.want)
			}
		})
	}
}

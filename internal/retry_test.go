package internal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// The waits double from the first to the maximum, each ± 25 %, and go on at the maximum for as
// long as there are failures. The same key gives the same waits.
func TestWaitsGrowToTheirMaximum(t *testing.T) {
	w, same := retry.NewWaits("key", time.Second, time.Minute), retry.NewWaits("key", time.Second, time.Minute)
	for i := range 100 {
		want := time.Minute
		if i < 6 {
			want = time.Second << i
		}
		got := w.Next()
		if got < want*3/4 || got > want*5/4 {
			t.Errorf("wait %d is %v, want %v ± 25 %%", i+1, got, want)
		}
		if again := same.Next(); again != got {
			t.Errorf("wait %d is %v and then %v for the same key", i+1, got, again)
		}
	}
	w.Reset()
	if got := w.Next(); got > time.Second*5/4 {
		t.Errorf("the first wait after a reset is %v, want a second ± 25 %%", got)
	}
}

// B-01: the context of a repeated request says how often it was sent before, whoever sent it
// first.
func TestARequestKnowsHowOftenItWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		err := retry.Do(t.Context(), "key", isBusy, func(ctx context.Context) error {
			if got = append(got, retry.Repeats(ctx)); len(got) < 3 {
				return errBusy
			}
			return nil
		})
		if want := []int{0, 1, 2}; err != nil || !slices.Equal(got, want) {
			t.Errorf("sent %v times before, %v; want %v and success", got, err, want)
		}
	})
}

// Package retry retries requests. A queue method sends one request; callers that know that it
// may be repeated, such as settling in dispatcher and sending in producer, call it through
// [Do].
package retry

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/jitter"
	"github.com/millrace/millrace/queue"
)

// The waits between tries grow from firstWait by the factor, each ± spread, up to maxWait. They
// are short because a lease runs out meanwhile or a caller waits. The context bounds the whole.
const (
	firstWait = 100 * time.Millisecond
	factor    = 2
	spread    = 0.25
	maxWait   = 5 * time.Second
)

// Do calls op until it succeeds, fails permanently, or ctx ends. The key, such as a message id,
// spreads the waits of different callers. If Do gives up it returns op's last error and not the
// context's, because it says more.
func Do(ctx context.Context, key string, op func(context.Context) error) error {
	return Again(ctx, key, nil, op)
}

// Again is [Do] after a first try that failed with the transient error last; nil means that
// there was none.
func Again(ctx context.Context, key string, last error, op func(context.Context) error) error {
	series := Waits(key, firstWait, maxWait)
	if last != nil && !pause(ctx, series.NextBackOff()) {
		return last
	}
	err := backoff.Retry(func() error {
		err := op(ctx)
		if err != nil {
			last = err
			if !Transient(err) {
				return backoff.Permanent(err)
			}
		}
		return err
	}, backoff.WithContext(&withoutReset{series}, ctx))
	if err != nil && last != nil {
		return last
	}
	return err
}

// Waits returns a growing series of waits that never stops, spread by the key.
func Waits(key string, firstWait, maxWait time.Duration) backoff.BackOff {
	return &waits{key: key, BackOff: backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstWait),
		backoff.WithMultiplier(factor),
		backoff.WithRandomizationFactor(0), // our own jitter is repeatable
		backoff.WithMaxInterval(maxWait),
		backoff.WithMaxElapsedTime(0), // no limit; the default of 15 minutes would stop it
	)}
}

type waits struct {
	backoff.BackOff
	key string
	n   int // waits returned
}

func (w *waits) NextBackOff() time.Duration {
	w.n++
	wait := w.BackOff.NextBackOff()
	return time.Duration(float64(wait) * (1 - spread + 2*spread*jitter.Of(w.key, w.n)))
}

// withoutReset is a series that [backoff.Retry] does not start over.
type withoutReset struct{ backoff.BackOff }

// Reset does nothing.
func (*withoutReset) Reset() {}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Transient reports whether the same request may succeed later: the service was busy or
// failing, or did not answer.
func Transient(err error) bool {
	return errors.Is(err, blob.ErrUnavailable) ||
		errors.Is(err, queue.ErrThrottled) ||
		errors.Is(err, queue.ErrUnavailable) ||
		errors.Is(err, queue.ErrOutcomeUnknown)
}

// Package retry is the one place where Millrace repeats a request. A queue
// method is one request (design: the port); whoever knows what repeating means
// calls it through [Do]: settling in dispatcher, sending in producer.
package retry

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace/millrace/internal/jitter"
	"github.com/millrace/millrace/queue"
)

// The waits between tries grow from first by the factor growth, each ± spread,
// up to most. They are short because what is repeated has a lease running out
// or a caller waiting; the context bounds the whole.
const (
	firstWait = 100 * time.Millisecond
	factor    = 2
	spread    = 0.25
	maxWait   = 5 * time.Second
)

// Do calls op until it succeeds, fails in a way that another try cannot mend,
// or ctx ends. The key, such as a message id, spreads the waits of different callers.
// When it gives up it returns op's last error, not the context's: what the
// service said is worth more than that time ran out.
func Do(ctx context.Context, key string, op func(context.Context) error) error {
	return Again(ctx, key, nil, op)
}

// Again is [Do] after a first try that failed with an error, which passes; nil means
// that there was none.
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

// Waits returns a growing series that never stops by itself, spread by the key.
func Waits(key string, firstWait, maxWait time.Duration) backoff.BackOff {
	return &waits{key: key, BackOff: backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstWait),
		backoff.WithMultiplier(factor),
		backoff.WithRandomizationFactor(0), // ours can be repeated
		backoff.WithMaxInterval(maxWait),
		backoff.WithMaxElapsedTime(0), // the library's 15 minutes would end it
	)}
}

type waits struct {
	backoff.BackOff
	key string
	n   int // waits so far
}

func (w *waits) NextBackOff() time.Duration {
	w.n++
	wait := w.BackOff.NextBackOff()
	return time.Duration(float64(wait) * (1 - spread + 2*spread*jitter.Of(w.key, w.n)))
}

// goesOn is a series that [backoff.Retry] does not start over.
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

// Transient reports whether the same request may succeed later without anyone
// doing anything: the service was busy, failing, or did not answer.
func Transient(err error) bool {
	return errors.Is(err, queue.ErrThrottled) ||
		errors.Is(err, queue.ErrUnavailable) ||
		errors.Is(err, queue.ErrOutcomeUnknown)
}

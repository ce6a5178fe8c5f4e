// Package retry retries requests. A queue method sends one request; callers that know that it
// may be repeated, such as settling in dispatcher and sending in producer, call it through
// [Do], and say which errors are transient.
package retry

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// The waits between tries grow from FirstWait by the factor, each ± spread, up to MaxWait. They
// are short because a lease runs out meanwhile or a caller waits. The context bounds the whole.
const (
	FirstWait = 100 * time.Millisecond
	MaxWait   = 5 * time.Second

	factor = 2
	spread = 0.25
)

// Do calls op until it succeeds, fails with an error that is not transient, or ctx ends. The key,
// such as a message id, spreads the waits of different callers. The context of each call tells how
// often the request was sent before: see [Repeats]. If Do gives up it returns op's last error and
// not the context's, because it says more.
func Do(ctx context.Context, key string, transient func(error) bool, op func(context.Context) error) error {
	first := op(Repeated(ctx, 0))
	if first == nil || !transient(first) { // nearly always, and then none of the following is allocated
		return first
	}
	sent, last := 0, first
	err := backoff.Retry(func() error {
		if sent++; sent > 1 {
			last = op(Repeated(ctx, sent-1))
		}
		if last != nil && !transient(last) {
			return backoff.Permanent(last)
		}
		return last
	}, backoff.WithContext(policy{NewWaits(key, FirstWait, MaxWait), &last}, ctx))
	if err != nil && last != nil {
		return last
	}
	return err
}

// Waits is a growing series of waits that never stops. It is not safe for concurrent use.
type Waits struct {
	key   string
	n     int // waits returned
	grown *backoff.ExponentialBackOff
}

// NewWaits returns waits from firstWait to maxWait, spread by the key.
func NewWaits(key string, firstWait, maxWait time.Duration) *Waits {
	return &Waits{key: key, grown: backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(firstWait),
		backoff.WithMultiplier(factor),
		backoff.WithRandomizationFactor(0), // our own jitter is repeatable
		backoff.WithMaxInterval(maxWait),
		backoff.WithMaxElapsedTime(0), // no limit; the default of 15 minutes would stop it
	)}
}

// Next returns the next wait.
func (w *Waits) Next() time.Duration {
	w.n++
	wait := w.grown.NextBackOff()
	return time.Duration(float64(wait) * (1 - spread + 2*spread*waiting.Jitter(w.key, w.n)))
}

// After returns the next wait after this error. It is longer, up to a minute, if the service asks
// for that.
func (w *Waits) After(err error) time.Duration {
	wait := w.Next()
	if e := (*queue.Error)(nil); errors.As(err, &e) {
		wait = max(wait, min(e.RetryAfter, maxAsked))
	}
	return wait
}

// Limited reports whether a limit of the program held the request back ([queue.ErrLimited]), and for
// how long.
func Limited(err error) (after time.Duration, limited bool) {
	if err == nil || !errors.Is(err, queue.ErrLimited) {
		return 0, false
	}
	if e := (*queue.Error)(nil); errors.As(err, &e) {
		after = e.RetryAfter
	}
	return after, true
}

// maxAsked bounds the waits that the service asks for.
const maxAsked = time.Minute

// Reset starts over with the first wait, spread differently than before.
func (w *Waits) Reset() { w.grown.Reset() }

// policy is waits as a [backoff.BackOff] that [backoff.Retry] does not start over.
type policy struct {
	*Waits
	last *error // of op
}

// NextBackOff implements [backoff.BackOff].
func (p policy) NextBackOff() time.Duration { return p.After(*p.last) }

// Reset does nothing.
func (policy) Reset() {}

// Repeated returns a context for a request that was sent n times before and failed each time: see
// [request.WithRepeats]. It is for callers that do not use [Do].
func Repeated(ctx context.Context, n int) context.Context { return request.WithRepeats(ctx, n) }

// Repeats returns how often the request of this context was sent before: see [request.Repeats].
func Repeats(ctx context.Context) int { return request.Repeats(ctx) }

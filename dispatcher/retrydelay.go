package dispatcher

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// maxRetryDelay is the longest delay of the retry curve.
const maxRetryDelay = time.Hour

// RetryCurve is the default of Options.RetryDelay: attempt⁴ seconds ± 10 %, at most an
// hour, so about 1 s, 16 s, 81 s, 4 min and 10 min after the first five failures. An
// attempt under 1 counts as 1. The spread is random, so that jobs that failed together do
// not come back together. A queue rounds up to whole seconds: the first wait is 1 s or 2 s.
// It is for a hook that treats only some errors otherwise:
//
//	RetryDelay: func(attempt int, err error) time.Duration {
//		if errors.Is(err, errBusy) {
//			return 0
//		}
//		return dispatcher.RetryCurve(attempt)
//	}
func RetryCurve(attempt int) time.Duration { return curve(attempt, rand.Float64()) }

// retryDelay is RetryCurve with jitter that depends on the message, so that a seeded run can be
// repeated.
func retryDelay(id queue.ID, attempt int) time.Duration {
	return curve(attempt, waiting.Jitter(string(id), attempt))
}

// curve returns the delay after a failed attempt; spread is its jitter in [0, 1).
func curve(attempt int, spread float64) time.Duration {
	seconds := math.Pow(float64(max(attempt, 1)), 4) * (0.9 + 0.2*spread)
	return time.Duration(min(seconds, maxRetryDelay.Seconds()) * float64(time.Second))
}

// retryDelay returns how long the message waits after a failed attempt: what the hook returns,
// or the default if there is no hook or it fails.
func (v *delivery) retryDelay(attempt int, err error) time.Duration {
	d := v.dispatcher
	if f := v.retryDelayHook(); f != nil {
		var wait time.Duration
		if d.hooks.Call("RetryDelay", func() { wait = f(attempt, err) }) {
			return min(max(wait, 0), queue.MaxVisibility)
		}
	}
	return retryDelay(v.queued.ID, attempt)
}

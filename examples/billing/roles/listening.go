package roles

import (
	"log/slog"
	"strings"
	"time"

	"github.com/millrace/millrace/beacon"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// Nothing is given up because the store or the books are away for hours: what cannot succeed is poison at once, and
// says so. Nor is anything given up because processes are killed again and again.
const (
	maxAttempts = 1000
	maxLost     = 1000
	maxDelay    = time.Minute // between attempts
)

// tuning has the settings in which the roles differ.
type tuning struct {
	concurrency, batch, minFetch int
	claims                       listener.Claims
	beacon                       beacon.Options
}

// listen adds the listener of a role.
func (s *System) listen(o *Options, q queue.Queue, kind listener.Kind, t tuning) {
	s.listeners[q.Name().Queue] = listener.NewKinds(q, []listener.Kind{kind}, &listener.Options[any]{
		Concurrency: t.concurrency, BatchSize: t.batch, MinFetch: t.minFetch, Claims: t.claims,
		Create: true, Idle: o.Idle, Wakeups: o.Source, Grace: o.Grace, Logger: o.Logger, Beacon: t.beacon,
		Visibility: dispatcher.Fixed(o.Visibility),
		Poison:     listener.PoisonPolicy{MaxLost: maxLost},
		Observer:   listener.Observer{Poisoned: poisoned(o.Logger)},
	})
}

// limits are those of our messages. What is none of ours has the defaults.
var limits = &kinds.Options{MaxAttempts: maxAttempts, RetryDelay: retryDelay}

// retryDelay is short at first: what fails is mostly a store that is away for seconds.
func retryDelay(attempt int, _ error) time.Duration {
	return min(time.Second<<min(attempt-1, 10), maxDelay)
}

// poisoned says which batch waits for a poison message, and what to do.
func poisoned(logger *slog.Logger) func(listener.Delivery, poison.Reason, error) {
	return func(d listener.Delivery, _ poison.Reason, err error) {
		batch, _, _ := strings.Cut(d.Job, "/")
		if batch == "" {
			return // it is no message of ours, and the listener logs it
		}
		logger.Error("a batch is not reported until its poison message is sent back: mend what the error says, then run millrace poison redrive "+d.Queue.Queue,
			"batch", batch, "job", d.Job, "error", err)
	}
}

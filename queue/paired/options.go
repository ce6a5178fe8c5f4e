package paired

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/queue"
)

const (
	defaultInterval = 10 * time.Second
	defaultProbe    = 30 * time.Second

	// MaxFailoverInterval is the longest failover interval.
	MaxFailoverInterval = time.Hour
)

// Options configure a [Queue]. Nil and the zero value mean the defaults. What is out of range is an error
// of [Queue.Pair].
type Options struct {
	// Backlogs is how many backlog queues there are, 1…[MaxBacklogs]. With 1 there is no other one to try
	// when it fails. Syphons must be told of the same number: with fewer, what waits in the other queues stays
	// there. Defaults to [DefaultBacklogs], 10.
	Backlogs int

	// FailoverInterval is how long sends may fail, without one that succeeds, before they go to the backlog
	// queues, at most [MaxFailoverInterval]. It is counted from the first failure to a later one: time in
	// which nobody sends fails nothing over. Below the time-out of a producer, no send of its fails in an
	// outage. Negative means at once, with the first failure that counts. Defaults to 10 s.
	FailoverInterval time.Duration

	// ProbeInterval is the least time between two requests that find out whether the primary queue accepts
	// again. Defaults to 30 s.
	ProbeInterval time.Duration

	// OnFailover is called when sends begin to go to the backlog queues, and OnReturn when they go to the
	// primary queue again. The calls come one at a time, in order, from a goroutine that sends; a send may wait for
	// them. A panic is logged and hurts nothing. Default to none.
	OnFailover, OnReturn func(Outage)

	// Logger gets one line when sends fail over and one when they return. Defaults to [slog.Default].
	Logger *slog.Logger
}

// withDefaults returns the options with defaults filled in, and what is wrong with them.
func withDefaults(o *Options) (Options, error) {
	var all Options
	if o != nil {
		all = *o
	}
	if all.Backlogs == 0 {
		all.Backlogs = DefaultBacklogs
	}
	if all.FailoverInterval == 0 {
		all.FailoverInterval = defaultInterval
	}
	if all.ProbeInterval == 0 {
		all.ProbeInterval = defaultProbe
	}
	switch {
	case all.Backlogs < 1 || all.Backlogs > MaxBacklogs:
		return all, invalid("Backlogs %d is outside 1…%d", all.Backlogs, MaxBacklogs)
	case all.FailoverInterval > MaxFailoverInterval:
		return all, invalid("FailoverInterval %v is over %v", all.FailoverInterval, MaxFailoverInterval)
	case all.FailoverInterval > 0 && all.FailoverInterval < time.Microsecond: // a number without a unit compiles
		return all, invalid("FailoverInterval %v needs a unit, such as %d*time.Second", all.FailoverInterval, all.FailoverInterval)
	case all.ProbeInterval < time.Microsecond:
		return all, invalid("ProbeInterval %v must be positive and have a unit, such as time.Second", all.ProbeInterval)
	}
	return all, nil
}

func invalid(format string, args ...any) error {
	return &queue.Error{Kind: queue.ErrInvalid, Detail: fmt.Sprintf(format, args...)}
}

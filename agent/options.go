package agent

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/meter"
	"github.com/millrace/millrace/wakeup"
)

// Options configure an [Agent]. Nil and the zero value mean the defaults.
type Options struct {
	// Interval is how long lies between measurements, at least 1 s. Defaults to 10 s.
	Interval time.Duration

	// Wakeups says when work comes, so that a pool of no instances is started at once. The agent takes part only while a pool has none,
	// so that events reach the workers otherwise. Defaults to none: the next measurement finds the work.
	Wakeups wakeup.Source

	// Folder is where the history of each pool is kept for the next start. It is created if it is missing. Defaults to none: the history is
	// lost with the process, and the next agent removes nothing until it has seen enough.
	Folder string

	// Prices are what instances and requests cost, for [Summary]. Defaults to unknown.
	Prices Prices

	// OnDecision is called after each decision, with the error if it could not be carried out. It is called concurrently for several pools, and
	// should not block: its pool waits. A panic in it is logged. Defaults to none.
	OnDecision func(Decided)

	// OnError receives every error, as an [*Error]. It is called concurrently for several pools, and should not block: its
	// pool waits. A panic in it is logged. Defaults to none.
	OnError func(error)

	// Logger logs each change of the number of instances, and errors: the first of a kind, one every ten minutes while it lasts, and its end.
	// Defaults to slog.Default().
	Logger *slog.Logger
}

// Prices are what things cost, in any one currency. The zero value means that nothing is known.
type Prices struct {
	// InstanceHour is the price of one instance for one hour. Zero means that it is unknown.
	InstanceHour float64 `json:"instance_hour,omitempty"`

	// Requests is the price of requests to queues. Its zero value means that it is unknown.
	Requests meter.Price `json:"requests"`
}

const (
	defaultInterval = 10 * time.Second
	minInterval     = time.Second
	requestTimeout  = 5 * time.Second  // of a request to a queue, and of Actuator.Instances
	scaleTimeout    = 30 * time.Second // of Actuator.Scale
	patience        = time.Second      // how long after the end of its context a call may return
	stopGrace       = 5 * time.Second  // how long after the stop an actuator's call may return
)

// withDefaults returns the options with defaults filled in, and what is wrong with them.
func (o *Options) withDefaults() (all Options, problems []error) {
	if o != nil {
		all = *o
	}
	if all.Interval == 0 {
		all.Interval = defaultInterval
	}
	if all.Logger == nil {
		all.Logger = slog.Default()
	}
	if all.Interval < minInterval {
		problems = append(problems, fmt.Errorf("the Interval %v is too short: use %v or more, such as 10*time.Second", all.Interval, minInterval))
	}
	if all.Prices.InstanceHour < 0 {
		problems = append(problems, fmt.Errorf("the price Prices.InstanceHour %v is negative", all.Prices.InstanceHour))
	}
	return all, problems
}

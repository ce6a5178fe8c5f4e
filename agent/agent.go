package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/wakeup"
)

// Actuator makes the number of instances of one pool what it should be. The agent calls one method of an actuator at a time.
type Actuator interface {
	// Instances returns how many instances there are, those included that are starting, and not those that are stopping.
	Instances(ctx context.Context) (int, error)

	// Scale asks for n instances. It does not wait until they work, or until surplus ones have ended: those finish their
	// jobs first.
	Scale(ctx context.Context, n int) error
}

// Pool are instances of one program that take jobs from the same queues.
type Pool struct {
	// Name is how the pool is called in sentences, logs and files. It must be unique.
	Name string

	// Queues are where the instances take jobs from. Figures are sums. At least one.
	Queues []queue.Queue

	// Beacons are the control queues in which the instances report. Defaults to none: figures that only instances know are unknown, and the policy's
	// own are used.
	Beacons []queue.Queue

	// Policy decides. Defaults to that of its zero value.
	Policy scaling.Policy

	// Actuator makes it so. Defaults to none: a dry run, which only decides.
	Actuator Actuator
}

// Options configure an [Agent]. Nil and the zero value mean the defaults.
type Options struct {
	// Interval is how long lies between measurements. Defaults to 10 s.
	Interval time.Duration

	// Wakeups says when work comes, so that a pool of no instances is started at once. Defaults to none: at the next measurement.
	Wakeups wakeup.Source

	// Folder is where the history of each pool is kept for the next start. Defaults to none: it is lost with the process.
	Folder string

	// OnDecision is called after each decision that was carried out, or that a dry run made. It should not block. Defaults to none.
	OnDecision func(Decided)

	// OnError receives every error. It should not block. Defaults to none.
	OnError func(error)

	// Logger logs each change of the number of instances, and errors. Defaults to slog.Default().
	Logger *slog.Logger
}

// Decided is one decision about one pool.
type Decided struct {
	Pool     string           `json:"pool"`
	Sample   scaling.Sample   `json:"sample"`
	Decision scaling.Decision `json:"decision"`
	DryRun   bool             `json:"dry_run"` // nothing was changed
	Err      error            `json:"-"`       // why it could not be carried out
}

// Agent scales pools.
type Agent struct{}

// New returns an agent, or everything that is wrong with the pools and options.
func New(pools []Pool, o *Options) (*Agent, error) { panic("not written yet") }

// Run measures and decides until ctx ends. Instances go on running.
func (a *Agent) Run(ctx context.Context) error { panic("not written yet") }

package listener

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/beacon"
	"github.com/millrace/millrace/wakeup"
)

// Defaults of [Options] and [Loops].
const (
	defaultGrace      = 30 * time.Second
	defaultPause      = 30 * time.Second
	defaultSafetyPoll = time.Minute
)

// sessionOptions are the [Options] that do not depend on the type of the jobs.
type sessionOptions struct {
	dispatcher.Options // Observer, OnError, OnLimited, OnWait and OnRelease are the session's

	Create            bool
	Metadata          Metadata
	Loops             Loops
	Idle              Idle
	Wakeups           wakeup.Source
	SafetyPoll        time.Duration
	Beacon            beacon.Options
	QueueEmpty        func(idleCount int) (wait time.Duration, stop bool)
	QueueWorkDetected func(Load) int
	LoopController    func() scaling.Controller
	Grace             time.Duration
	Observer          Observer
	OnError           func(error)
	Logger            *slog.Logger
}

// withDefaults returns the listener's own options with their defaults, or all errors in them.
// The dispatcher checks its own.
func (c sessionOptions) withDefaults() (sessionOptions, error) {
	var errs []error

	if c.Concurrency == 0 {
		c.Concurrency, _ = c.DefaultConcurrency() // the dispatcher reports the error
	}
	if c.BatchSize == 0 {
		c.BatchSize = dispatcher.DefaultBatchSize
	}
	errs = append(errs, c.Loops.check(), idleBesideHook(c.Idle, c.QueueEmpty != nil), c.checkWakeups())
	if c.SafetyPoll == 0 {
		c.SafetyPoll = defaultSafetyPoll
	}
	var err error
	if c.Idle, err = idleWithDefaults(c.Idle); err != nil {
		errs = append(errs, err)
	}
	if c.QueueWorkDetected == nil {
		c.QueueWorkDetected = scaling.PerBatch
	}
	errs = append(errs, units.Wait("grace", c.Grace), units.Wait("safety poll", c.SafetyPoll))
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	if c.OnError == nil {
		c.OnError = func(error) {}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}

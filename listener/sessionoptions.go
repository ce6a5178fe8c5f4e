package listener

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/scaling"
)

// Defaults of [Options] and [Loops].
const (
	defaultGrace      = 30 * time.Second
	defaultPause      = 30 * time.Second
	defaultSafetyPoll = time.Minute
)

// sessionOptions are the [Options] that do not depend on the type of the jobs.
type sessionOptions struct {
	dispatcher.Options // Observer, OnError, OnFailing, OnWait and OnRelease are the session's

	Create   bool
	Metadata Metadata
	Fetch    FetchOptions
	Wakeups  Wakeups
	Beacon   BeaconOptions
	Grace    time.Duration
	Observer Observer
	OnError  func(error)
	Logger   *slog.Logger

	controller   controller // nil for none
	UnknownSlots error      // not nil if no dispatcher can use the option Slots
}

// withDefaults returns the listener's own options with their defaults, or all errors in them.
// The dispatcher checks its own.
func (c sessionOptions) withDefaults() (sessionOptions, error) {
	errs := []error{c.UnknownSlots}
	if c.Concurrency == 0 {
		c.Concurrency, _ = c.DefaultConcurrency() // the dispatcher reports the error
	}
	if c.BatchSize == 0 {
		c.BatchSize = dispatcher.DefaultBatchSize
	}
	errs = append(errs, c.Fetch.Loops.check(), idleBesideHook(c.Fetch.Idle, c.Fetch.QueueEmpty != nil), c.checkWakeups())
	if c.Fetch.SafetyPoll == 0 {
		c.Fetch.SafetyPoll = defaultSafetyPoll
	}
	var err error
	if c.Fetch.Idle, err = idleWithDefaults(c.Fetch.Idle); err != nil {
		errs = append(errs, err)
	}
	if c.Fetch.QueueWorkDetected == nil {
		c.Fetch.QueueWorkDetected = scaling.PerBatch
	}
	errs = append(errs, units.Wait("grace", c.Grace), units.Wait("Fetch.SafetyPoll", c.Fetch.SafetyPoll))
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

package dispatcher

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// decision says how to settle a message. It is made once and not changed.
type decision struct {
	outcome   Outcome
	delay     time.Duration
	reason    poison.Reason
	err       error
	returned  bool   // whether a handler has returned, or middleware in its place
	called    bool   // whether the handler was called: see NotRun
	handled   bool   // whether the job was handled to success, or every item of a group that was not discarded
	forOthers bool   // whether the message is left to workers that know more than this one
	health    health // whether the handlers work
}

// jobState is the state of a job after its handler has returned.
type jobState uint8

const (
	jobLeft    jobState = iota // its handler was not called yet, or was interrupted
	jobDone                    // succeeded, in this delivery or in an earlier one
	jobDropped                 // discarded in this delivery
	jobRetried                 // it failed, and is handled again in a later delivery
	jobSnoozed                 // it was too early for it
	jobFailed                  // it failed for good, in this delivery or in an earlier one
)

// rank orders the states: the item with the highest one decides on the message of its group.
func (s jobState) rank() int {
	return [...]int{jobDropped: 0, jobDone: 1, jobFailed: 2, jobSnoozed: 3, jobLeft: 4, jobRetried: 5}[s]
}

// done reports whether a job in this state needs no handler any more, because it needs nothing.
func (s jobState) done() bool { return s == jobDone || s == jobDropped }

// jobResult is the classified error of a handler. It is written once, when the handler has
// returned.
type jobResult struct {
	state  jobState
	now    bool          // in this delivery
	err    error         // its handler's error; nil if it succeeded or was not called
	said   *resultError  // the request in err; nil for a plain failure
	reason poison.Reason // why it failed for good
	newer  bool          // with jobSnoozed: it is left to a newer worker
}

// classify returns the result of a handler that returned err, in which said was found. A job that
// was interrupted has not failed and is left.
func classify(o *opened, err error, said *resultError, interrupted bool) jobResult {
	r := jobResult{now: true, err: err, said: said}
	switch {
	case err == nil:
		r.state = jobDone
	case interrupted && (said == nil || said.outcome == Retried || said.outcome == Snoozed || errors.Is(err, context.Canceled)):
		r.state = jobLeft
	case said != nil && said.outcome == Discarded:
		r.state = jobDropped
	case said != nil && said.outcome == Poisoned:
		r.state, r.reason = jobFailed, poison.ReasonRejected
	case said != nil && said.outcome == Snoozed:
		r.state = jobSnoozed
	case o.attempt() >= o.maxAttempts():
		r.state, r.reason = jobFailed, poison.ReasonAttempts
	default:
		r.state = jobRetried
	}
	return r
}

// result combines the results of the jobs of a message. resultOf makes it.
type result struct {
	jobResult       // of the only job, or of the item that decides
	all       error // of the job, or of the group
	reported  error // the part of it that is reported if the message comes again without an attempt
	expiring  error // the part of it that is reported if a wait would be longer than the life of the message
	undone    bool  // whether a job is left undone by a delete
	handled   bool  // as in decision
	worked    bool  // whether an item of a group did not fail
}

// resultOf returns the result of the message after its handler returned err.
func (v *delivery) resultOf(err error, said *resultError, interrupted bool) result {
	if v.running.group != nil {
		return v.running.group.result()
	}
	one := classify(&v.opened, err, said, interrupted)
	r := result{jobResult: one, all: err, expiring: err, undone: err != nil, handled: err == nil}
	if one.state == jobSnoozed {
		r.expiring = said.err // nothing to report otherwise
	}
	return r
}

// decide decides on a message by the result of its handler, and settles it.
func (v *delivery) decide(r result, called bool) {
	dec := decisionOn(&v.opened, r)
	dec.returned, dec.called = true, called
	dec.health = healthOf(dec, r.worked)
	v.settle(dec)
}

// decisionOn decides on a message by the result of its handler and the state of its lease. A
// group comes again while one of its items is to be handled again. When all others are done, it is
// poison if one failed for good.
func decisionOn(o *opened, r result) decision {
	lease := o.lease.state
	switch {
	case lease == expired && r.undone && o.lifeEnds(MinVisibility):
		return poisoned(o, poison.ReasonExpiring, r.all)
	case lease == lost, lease == expired && r.undone:
		return decision{outcome: Lost, err: errors.Join(cause(lease), r.all), handled: r.handled}
	case r.state == jobRetried && r.said != nil:
		return later(o, Retried, r.said.delay, r.all)
	case r.state == jobRetried:
		return later(o, Retried, retryWait(o, o.attempt(), r.all), r.all)
	case r.state == jobLeft:
		return decision{outcome: Returned, err: r.reported}
	case r.state == jobSnoozed && r.newer:
		dec := later(o, Snoozed, newerDelay(o), r.all)
		dec.forOthers = true
		return dec
	case r.state == jobSnoozed:
		delay := r.said.delay
		if delay == 0 && o.queued.DequeueCount > soonSnoozes {
			delay = time.Second
		}
		dec := later(o, Snoozed, delay, r.expiring)
		if dec.outcome == Snoozed {
			dec.err = r.reported
		}
		return dec
	case r.state == jobFailed:
		return poisoned(o, r.reason, r.all)
	case r.state == jobDropped:
		return decision{outcome: Discarded, err: r.all}
	}
	return decision{outcome: Deleted, err: r.all, handled: r.handled}
}

// soonSnoozes is after how many deliveries a snooze without a delay takes a second, so that a job
// that always asks for one does not keep the queue busy.
const soonSnoozes = 5

// soonDeliveries is after how many deliveries a message that this worker cannot handle comes less
// often. They take 2 min at least, and make it 98 % likely that one worker of nine gets it.
const soonDeliveries = 40

// newerDelay returns how long a message is left to workers that know more than this one: 3 or 4 s
// after each of its first deliveries, and then twice as long each time, up to an hour. If no worker
// can handle it, it is delivered some 74 times on its first day, and 26 times on each later one.
//
// It depends on the deliveries and not on the age, because a message that was sent with a delay is
// old when it first comes. A message in which nothing can be recorded waits as after a failure,
// because each of its deliveries counts as one.
func newerDelay(o *opened) time.Duration {
	if !o.recordable() {
		return retryDelay(o.queued.ID, o.attempt())
	}
	n := int(min(o.queued.DequeueCount, math.MaxInt32))
	delay := waiting.Doubled(4*time.Second, max(n-soonDeliveries, 0), time.Hour)
	delay -= time.Duration(waiting.Jitter(string(o.queued.ID), n) * float64(max(delay/10, 2*time.Second)))
	if room := o.longestWait(); room >= time.Second {
		return min(delay, room)
	}
	return delay
}

// unreadable decides on a message that could not be opened or decoded: a newer one is left to
// another worker, anything else is poison. Without an envelope it is left to another as often as
// there are attempts.
func unreadable(o *opened, err error) decision {
	if errors.Is(err, codec.ErrNewer) && (o.enveloped() || o.attempt() <= o.maxAttempts()) {
		return decision{outcome: Snoozed, delay: newerDelay(o), err: err, forOthers: true}
	}
	return poisoned(o, poison.ReasonUndecodable, envelope.Explain(o.queued.Text, o.dispatcher.options.Format, err))
}

// later gives the message back with the delay, or with a shorter one if the message expires
// before it could be handled. If less than a second is left it is poison, because the service
// would drop it without a trace.
func later(o *opened, outcome Outcome, delay time.Duration, err error) decision {
	room := o.longestWait()
	if room < time.Second {
		return poisoned(o, poison.ReasonExpiring, err)
	}
	return decision{outcome: outcome, delay: min(delay, room), err: err}
}

// poisoned decides that the message is poison: it is moved to the poison queue, or kept hidden
// if there is none.
func poisoned(o *opened, reason poison.Reason, err error) decision {
	if o.dispatcher.options.Poison.Keep {
		return decision{outcome: Kept, delay: keptDelay(o), reason: reason, err: err}
	}
	return decision{outcome: Poisoned, reason: reason, err: err}
}

func cause(s leaseState) error {
	if s == lost {
		return ErrLeaseLost
	}
	return ErrLeaseExpired
}

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

// retryWait returns how long the message waits after a failed attempt. It calls the hook of the
// kind or of the options. The default applies if there is no hook or it panics.
func retryWait(o *opened, attempt int, err error) time.Duration {
	d := o.dispatcher
	hook := d.options.RetryDelay
	if o.kind != nil && o.kind.options.RetryDelay != nil {
		hook = o.kind.options.RetryDelay
	}
	if hook != nil {
		var wait time.Duration
		if d.hooks.Call("RetryDelay", func() { wait = hook(attempt, err) }) {
			return min(max(wait, 0), queue.MaxVisibility)
		}
	}
	return retryDelay(o.queued.ID, attempt)
}

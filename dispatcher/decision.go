package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/poison"
)

// decision says how to settle a message.
type decision struct {
	outcome Outcome
	delay   time.Duration
	reason  poison.Reason
	err     error
	handled bool // whether the job was handled to success, or every item of a group that was not discarded
	worked  bool // whether it is the result of a group, some of whose items did not fail

	unfetched bool // whether the body of its claim could not be read for now
	postponed bool // whether no handler was called: see Postpone
}

// refuse decides on a message that this worker must leave alone.
func (v *delivery) refuse(unread error) (dec decision, refused bool) {
	took := time.Since(v.lease.asked)
	v.dispatcher.visibility.recordDequeue(took, v.visibility)
	switch {
	case took >= v.visibility-safetyMargin:
		// The response took as long as the lease: another worker may have the message.
		return decision{outcome: Lost, err: ErrLeaseExpired}, true
	case !v.start:
		return decision{outcome: GivenBack}, true
	case unread != nil:
		return v.unreadable(unread), true
	}
	return decision{}, false
}

// refusePoison decides on a message that is poison already. That is detected before decoding and
// handling, because a message that kills workers must not be touched again.
func (v *delivery) refusePoison() (dec decision, refused bool) {
	switch {
	case v.head.Poison != "":
		return v.poisoned(poison.Reason(v.head.Poison), errors.New("it was poison at an earlier delivery and could not be moved")), true
	case v.starts >= v.dispatcher.maxLost():
		return v.poisoned(v.lostReason()), true
	case v.attempt() > v.maxAttempts():
		return v.poisoned(poison.ReasonAttempts, errors.New("every attempt failed, or ended without a result because the worker died or lost its lease")), true
	case v.lifeEnds(time.Second):
		return v.poisoned(poison.ReasonExpiring, errors.New("its life ends before a handler could finish")), true
	}
	return v.holdBack()
}

// lostReason returns why a message is poison whose handlers started and settled nothing. If this
// process saw as many of them return without their lease as it excludes, they do not die.
func (v *delivery) lostReason() (poison.Reason, error) {
	if v.lastRecorded.returned >= maxExcluded {
		return poison.ReasonOutlived, fmt.Errorf("its handlers kept returning after they had lost its lease, %d of them in this process: "+
			"they take longer than the visibility, and its renewals fail or other workers get the message; raise Visibility, or let handlers end with their context", v.lastRecorded.returned)
	}
	return poison.ReasonLost, fmt.Errorf("%d handlers in a row started and nothing came of it: the worker died or lost its lease", v.starts)
}

// newerDelay is how long a message with a newer envelope is left to workers of a newer release.
const newerDelay = 30 * time.Second

// unreadable decides on a message that could not be opened or decoded: what is newer than this
// program is left to another, anything else is poison. Without an envelope it is left to another as
// often as there are attempts.
func (v *delivery) unreadable(err error) decision {
	if errors.Is(err, codec.ErrNewer) && (v.enveloped() || v.attempt() <= v.maxAttempts()) {
		v.forOthers = true
		return decision{outcome: Snoozed, delay: newerDelay, err: err}
	}
	return v.poisoned(poison.ReasonUndecodable, codec.Explain(v.queued.Text, v.dispatcher.options.Format, err))
}

// decide turns the handler's error into a decision. An interrupted handler has not failed.
func (v *delivery) decide(err error, state leaseState, interrupted bool) decision {
	said := explicitResult(err)
	explicit := said != nil
	switch {
	case state == expired && err != nil && v.lifeEnds(MinVisibility):
		return v.poisoned(poison.ReasonExpiring, err)
	case state == lost, state == expired && err != nil:
		return decision{outcome: Lost, err: errors.Join(cause(state), err), handled: err == nil}
	case err == nil:
		return decision{outcome: Deleted, handled: true}
	case interrupted && (!explicit || said.outcome == Retried || said.outcome == Snoozed || errors.Is(err, context.Canceled)):
		return decision{outcome: GivenBack}
	case explicit && said.outcome == Discarded:
		return decision{outcome: Discarded, err: err}
	case explicit && said.outcome == Poisoned:
		return v.poisoned(poison.ReasonRejected, err)
	case explicit && said.outcome == Snoozed:
		dec := v.later(Snoozed, said.delay, said.err)
		if dec.outcome == Snoozed {
			dec.err = nil // nothing to report
		}
		return dec
	case v.attempt() >= v.maxAttempts():
		return v.poisoned(poison.ReasonAttempts, err)
	case explicit:
		return v.later(Retried, said.delay, err)
	}
	return v.later(Retried, v.retryDelay(v.attempt(), err), err)
}

// later gives the message back with the delay, or with a shorter one if the message expires
// before it could be handled. If less than a second is left it is poison, because the service
// would drop it without a trace.
func (v *delivery) later(outcome Outcome, delay time.Duration, err error) decision {
	if !v.lease.messageEnd.IsZero() {
		room := time.Until(v.lease.messageEnd) - v.dispatcher.Visibility()
		if room < time.Second {
			return v.poisoned(poison.ReasonExpiring, err)
		}
		delay = min(delay, room.Truncate(time.Second))
	}
	return decision{outcome: outcome, delay: delay, err: err}
}

// poisoned decides that the message is poison: it is moved to the poison queue, or kept hidden
// if there is none.
func (v *delivery) poisoned(reason poison.Reason, err error) decision {
	if v.dispatcher.options.Poison.Keep {
		return decision{outcome: Kept, delay: v.keptDelay(), reason: reason, err: err}
	}
	return decision{outcome: Poisoned, reason: reason, err: err}
}

// lifeEnds reports whether less than this much is left until the message expires.
func (v *delivery) lifeEnds(left time.Duration) bool {
	return !v.lease.messageEnd.IsZero() && time.Until(v.lease.messageEnd) < left
}

func cause(s leaseState) error {
	if s == lost {
		return ErrLeaseLost
	}
	return ErrLeaseExpired
}

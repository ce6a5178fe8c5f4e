package dispatcher

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/keyed"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue/driver"
)

// admission holds the slot of a message and the findings of the stages before its handler runs.
// Dispatch writes the fields, or the stage that is named.
type admission struct {
	reserved bool        // whether it has a slot; by Dispatch
	paused   bool        // whether its queue was found to be paused; by Dispatch
	batch    *batchSlots // shared with its batch; by Dispatch, nil once it is known whether the slot is needed

	recorded  bool          // whether the start of its handler is recorded in its text; by starts
	lastStart recordedStart // known in this process when starts were counted; by open
	ticket    ticket        // by outages
	turn      time.Time     // since when it has a place of its kind; by kindTurns
	claim     claim         // by claims, and by Message.Save
	job       HeldJob       // nil if it is not held; by duplicates
}

// stage is one step between a message and its handler that may keep the handler from running, and
// has work to do when it has run. Its methods are called by the worker of the delivery.
type stage interface {
	// admit returns a decision if the handler must not run.
	admit(v *delivery) (dec decision, refused bool)

	// returned is called at the end of the last stage that was reached: before the lease is
	// released. Called tells whether the handler was called.
	returned(v *delivery, called bool)

	// decided is called before the slot is free for another message.
	decided(v *delivery, dec decision)

	// settled is called when the message was settled as decided, with that outcome.
	settled(v *delivery, outcome Outcome)
}

// newStages returns the stages in the order of admission. Their other methods are called in the
// opposite order.
func (d *Dispatcher) newStages() []stage {
	var all []stage
	if d.kinds != nil {
		all = append(all, kinds{})
	}
	if d.options.Duplicates != nil {
		// Before the bounds: a job that was handled, or is being handled, is never poison, however
		// often its message comes again.
		all = append(all, duplicates{})
	}
	all = append(all, bounds{}, outages{})
	all = append(all, &d.starts) // before the body is decoded, which may kill the worker too
	if d.kinds != nil {
		all = append(all, &kindTurns{turns: keyed.NewTurns(longestTurnWait, longestTurnDelay)})
	}
	if d.options.Claims != nil {
		all = append(all, claims{})
	}
	return append(all, groups{}, bodies{})
}

// passive is a stage that does nothing but admit.
type passive struct{}

func (passive) returned(*delivery, bool)    {}
func (passive) decided(*delivery, decision) {}
func (passive) settled(*delivery, Outcome)  {}

// admit passes the message through all stages and on to its handler, or settles it.
func (v *delivery) admit() {
	for _, s := range v.dispatcher.stages {
		if dec, refused := s.admit(v); refused {
			v.refuse(dec)
			return
		}
	}
	v.run()
}

// refuse settles a message without running its handler. If its lease was tracked meanwhile, and has
// ended, that goes before the decision.
func (v *delivery) refuse(dec decision) {
	v.notifyReturned(false)
	if v.tracked() {
		switch ended := v.release(); {
		case v.lease.state != held:
			dec = decision{outcome: Lost, err: errors.Join(cause(v.lease.state), dec.err)}
		case ended != nil:
			dec = decision{outcome: Returned, forOthers: dec.forOthers}
		}
	}
	v.settle(dec)
}

// heldBack decides that the message waits and comes again without an attempt, if that is possible.
func (v *delivery) heldBack(wait time.Duration, because error) (dec decision, ok bool) {
	if !v.postponable() {
		return decision{}, false
	}
	return later(&v.opened, Snoozed, wait, because), true
}

// postponable reports whether the message can come again without an attempt: before it expires, and
// with room for the record, because without one each delivery counts as an attempt.
func (v *delivery) postponable() bool {
	if !v.recordable() || v.longestWait() < time.Second {
		return false
	}
	text := v.recordedText(v.head, v.attempt()-1, false)
	return text != v.queued.Text && driver.CheckRequest(text, 0) == nil
}

// bounds is the stage of poison.Policy: it refuses a message that is poison already. That is
// detected before decoding and handling, because a message that kills workers must not be touched
// again.
type bounds struct{ passive }

func (bounds) admit(v *delivery) (dec decision, refused bool) {
	switch {
	case v.head.Poison != "":
		return poisoned(&v.opened, poison.Reason(v.head.Poison), errors.New("it was poison at an earlier delivery and could not be moved")), true
	case v.starts >= v.dispatcher.maxLost():
		reason, why := lostReason(v.starts, v.admission.lastStart.returned)
		return poisoned(&v.opened, reason, why), true
	case v.attempt() > v.maxAttempts():
		return poisoned(&v.opened, poison.ReasonAttempts, errors.New("every attempt failed, or ended without a result because the worker died or lost its lease")), true
	case v.lifeEnds(time.Second):
		return poisoned(&v.opened, poison.ReasonExpiring, errors.New("its life ends before a handler could finish")), true
	}
	return decision{}, false
}

// lostReason returns why a message is poison after its handlers started and settled nothing. If
// this process saw as many of them return without their lease as it excludes, they do not die.
func lostReason(starts, returned int) (poison.Reason, error) {
	if returned >= maxExcluded {
		return poison.ReasonOutlived, fmt.Errorf("its handlers kept returning after they had lost its lease, %d of them in this process: "+
			"they take longer than the visibility, and its renewals fail or other workers get the message; raise Visibility, or let handlers end with their context", returned)
	}
	return poison.ReasonLost, fmt.Errorf("%d handlers in a row started and nothing came of it: the worker died or lost its lease", starts)
}

// bodies is the stage that decodes the body of a job that is in no group.
type bodies struct{ passive }

func (bodies) admit(v *delivery) (dec decision, refused bool) {
	if v.running.group != nil {
		return decision{}, false
	}
	if err := v.job.decodeBody(); err != nil {
		return unreadable(&v.opened, err), true
	}
	v.admission.claim.body = nil // the handler has it as T: do not hold it twice
	return decision{}, false
}

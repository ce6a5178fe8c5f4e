package dispatcher

import (
	"errors"
	"strings"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/poison"
)

// err returns the error of the group with those of the items that are chosen, or nil if none is.
func (g *group) err(chosen func(itemStatus) bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := &GroupError{Items: len(g.statuses)}
	none := true
	for i, s := range g.statuses {
		if !chosen(s) {
			continue
		}
		none = false
		switch {
		case s.err != nil:
			e.Errors = append(e.Errors, ItemError{i, s.err})
		case s.state == itemFailed:
			e.Failed++
			_, e.Before, _ = strings.Cut(g.head.Failure, " ")
		case s.state == itemLeft:
			e.Left++
		}
	}
	if none {
		return nil
	}
	return e
}

// worked reports whether its handler had another result than a failure in this delivery.
func (s itemStatus) worked() bool {
	switch s.state {
	case itemLeft, itemRetried:
		return false
	case itemFailed:
		return s.now && s.reason == poison.ReasonRejected
	case itemSnoozed: // without a handler if it was postponed, or is left to a newer worker
		return s.now && !errors.Is(s.err, codec.ErrNewer) && !isPostponed(s.err)
	}
	return s.now
}

// postponed reports whether items were postponed in this delivery, and no handler was called.
func (g *group) postponed() (found bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.statuses {
		if !s.now {
			continue
		}
		if s.state != itemSnoozed || !isPostponed(s.err) {
			return false
		}
		found = true
	}
	return found
}

// unsuccessful chooses everything but success.
func unsuccessful(s itemStatus) bool { return s.state != itemDone }

// reportable chooses what is reported: neither what was interrupted nor a snooze, unless the item is
// left to a newer worker.
func reportable(s itemStatus) bool {
	switch s.state {
	case itemDone, itemLeft:
		return false
	case itemSnoozed:
		return errors.Is(s.err, codec.ErrNewer)
	}
	return true
}

// results is what became of the items together.
type results struct {
	retried, snoozed, failed *itemStatus // the first of each, of this delivery if possible; nil for none
	left, done               bool        // whether there are such
	succeeded                bool        // whether an item did in this delivery
	worked                   bool        // whether a handler had another result than a failure
}

func (g *group) results() (r results) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.statuses {
		switch s.state {
		case itemLeft:
			r.left = true
		case itemDone:
			r.done = true
			r.succeeded = r.succeeded || s.now
		case itemRetried:
			if r.retried == nil {
				r.retried = &s
			}
		case itemSnoozed:
			if r.snoozed == nil {
				r.snoozed = &s
			}
		case itemFailed:
			if r.failed == nil || s.now && !r.failed.now {
				r.failed = &s
			}
		}
		r.worked = r.worked || s.worked()
	}
	return r
}

// decideGroup decides by the results of the items. The message comes again while one of them is to
// be handled again. When all others are done, it is poison if one failed for good.
func (v *delivery) decideGroup(state leaseState) decision {
	r, err := v.group.results(), v.group.err(reportable)
	unfinished := r.left || r.retried != nil || r.snoozed != nil || r.failed != nil
	// Of an item that was done before the head does not say whether it was discarded.
	handled := r.succeeded && !unfinished
	var dec decision
	switch {
	case state == expired && unfinished && v.lifeEnds(MinVisibility):
		dec = v.poisoned(poison.ReasonExpiring, err)
	case state == lost, state == expired && unfinished:
		return decision{outcome: Lost, err: errors.Join(cause(state), err), handled: handled}
	case r.retried != nil:
		if said := explicitResult(r.retried.err); said != nil {
			dec = v.later(Retried, said.delay, err)
		} else {
			dec = v.later(Retried, v.retryDelay(v.attempt(), err), err)
		}
	case r.left:
		dec = decision{outcome: GivenBack, err: err}
	case r.snoozed != nil:
		dec = v.later(Snoozed, v.snoozeDelay(r.snoozed.err), err)
	case r.failed != nil:
		dec = v.poisoned(r.failed.reason, err)
	case !r.done:
		dec = decision{outcome: Discarded, err: err}
	default:
		dec = decision{outcome: Deleted, err: err, handled: handled}
	}
	dec.worked = r.worked
	return dec
}

// snoozeDelay returns how long an item waits that was snoozed, or is left to a newer worker.
func (v *delivery) snoozeDelay(err error) time.Duration {
	if errors.Is(err, codec.ErrNewer) {
		v.forOthers = true
		return newerDelay
	}
	return explicitResult(err).delay
}

package simulation

import (
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/queue"
)

// delivery is one delivery of a message by the server.
type delivery struct {
	message   *message
	who       string
	entry     entry
	head      envelope.Head
	bodies    []string // that the message may have, delivered or saved; several after an unknown outcome
	settled   int64    // delivery up to which outcomes were recorded at that time
	noted     bool     // the start of its handler is recorded in the message
	began     *entry
	cut       time.Duration    // when the handler's context ended while it ran; 0 for not
	cause     string           // and why
	items     map[int]*itemRun // of a group, by index
	reported  time.Duration    // when it was reported as stuck; 0 for not
	givenUp   bool             // its slot was given to another
	ended     *entry
	copied    bool
	hidden    bool // its body was not found, although it is there
	duplicate bool // it was deleted because its body is a tombstone
	back      bool // given back: an update after the run, or without one
}

// counted reports whether the text counts attempts.
func (d *delivery) counted() bool { return isEnvelope(d.entry.text) }

// ran reports whether a handler ran; of a group, that of an item.
func (d *delivery) ran() bool { return d.began != nil && (d.head.Items == 0 || len(d.items) > 0) }

// endedWith reports whether the run of the delivery ended with this result.
func (d *delivery) endedWith(result string) bool {
	return d.ended != nil && strings.HasPrefix(d.ended.outcome, result)
}

// has reports whether the message may have that body.
func (d *delivery) has(body string) bool { return slices.Contains(d.bodies, body) }

// holds reports whether the message may have that text.
func (b *ledger) holds(d *delivery, text string) bool {
	if text == d.entry.text {
		return true
	}
	o := b.world.open(text)
	return o.err == nil && o.head.ID == d.head.ID && d.has(o.body)
}

// over returns when the handler ended or, without one, the time of the delivery.
func (d *delivery) over() time.Duration {
	if d.ended != nil {
		return d.ended.at
	}
	return d.entry.at
}

func (d *delivery) result() string {
	switch {
	case d.began == nil:
		return "never began"
	case d.ended == nil:
		return "never ended"
	}
	return "ended: " + d.ended.outcome
}

// save records what a handler saved.
func (b *ledger) save(d *delivery, e entry) {
	switch {
	case e.kind == saving:
		d.bodies = append(d.bodies, e.text)
	case e.outcome == "":
		d.bodies = []string{e.text}
	case e.outcome != queue.ErrOutcomeUnknown.Error(): // only this try: an earlier one may have saved the same
		if i := slices.Index(d.bodies, e.text); i >= 0 {
			d.bodies = slices.Delete(d.bodies, i, i+1)
		}
	}
}

// undecoded reports whether the codec panicked, which is a failed attempt.
func (d *delivery) undecoded() bool { return d.message.job.undecoded && d.began == nil }

// failed reports whether its handler failed, by itself or by its time-out. One that was interrupted
// by the loss of its lease or by the stop did not fail, whatever it returned.
func (d *delivery) failed() bool {
	return d.endedWith(didFail) && (d.cut == 0 || d.cause == dispatcher.ErrTimeout.Error())
}

// excused reports whether the attempt may not count: its worker had slowed down because many jobs had
// failed and for a minute none had worked, when the message came or when its handler began, which may
// be after it had waited for its key.
func (b *ledger) excused(d *delivery) bool {
	return b.slow(d.who, d.entry.at) || b.slow(d.who, d.began.at)
}

// slow reports whether the worker may have slowed down by then.
func (b *ledger) slow(who string, at time.Duration) bool {
	failures := 0
	for _, a := range b.sent() {
		for _, o := range a.deliveries {
			if o.who == who && o.undecoded() && o.entry.at <= at {
				failures++
			}
			if o.who != who || o.ended == nil || o.ended.at > at {
				continue
			}
			worked := o.endedWith(didSucceed) || o.endedWith(didPoison) || o.endedWith(didDiscard) || o.endedWith(didSnooze)
			switch {
			case o.endedWith(didFail):
				failures++
			case worked && o.cut == 0 && o.ended.at > at-time.Minute:
				return false
			}
		}
	}
	return failures >= minOutage
}

// missing returns the number of earlier deliveries without a recorded outcome.
func (d *delivery) missing() int64 { return d.entry.count - 1 - d.head.Settled }

// starts reports whether an update with the text records that the handler is about to start. A
// worker that cannot decode the message gives it back with its text unchanged.
func (b *ledger) starts(d *delivery, text string) bool {
	if !b.workers[d.who].plan.reads(d.message.job) {
		return false
	}
	o := b.world.open(text)
	return o.err == nil && o.format == codec.Envelope && d.began == nil && o.head.Starts > 0 && o.head.Settled == d.head.Settled
}

// before returns the deliveries since the last settlement that was recorded at its own.
func (d *delivery) before() []*delivery {
	return d.message.deliveries[d.settled : d.entry.count-1]
}

// lost returns how many starts of handlers may have killed their workers, as far as the worker of
// this delivery can know: those that it recorded itself did not, unless they are still running, and
// others may have left theirs out.
func (d *delivery) lost() (n int) {
	for _, o := range d.before() {
		running := o.began != nil && (o.ended == nil || o.ended.at > d.entry.at)
		if o.noted && (o.who != d.who || running) {
			n++
		}
	}
	return min(n, d.head.Starts)
}

// killed returns the number of runs since the last settlement that have not ended.
func (d *delivery) killed() (n int) {
	for _, o := range d.before() {
		if o.began != nil && o.ended == nil {
			n++
		}
	}
	return n
}

// isFirst reports whether its worker did not get the message before, and so knows no more than the
// record. One that did may not know whether starts that it remembers as harmless are still counted.
func (d *delivery) isFirst() bool {
	return !slices.ContainsFunc(d.message.deliveries[:d.entry.count-1], func(o *delivery) bool { return o.who == d.who })
}

// runs returns how often a handler ran for the message.
func (a *message) runs() (n int) {
	for _, d := range a.deliveries {
		if d.began != nil {
			n++
		}
	}
	return n
}

package simulation

import (
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
)

// delivery is one time that the server handed a message out.
type delivery struct {
	account  *account
	who      string
	entry    entry
	head     codec.Head
	bodies   []string // that the message may have: as it was delivered or saved; several where an outcome is unknown
	settled  int64    // delivery up to which it was recorded then what came of it
	noted    bool     // that its handler starts is recorded in the message
	began    *entry
	cut      time.Duration // when the handler's context ended while it ran; 0 for not
	cause    string        // and why
	reported time.Duration // when it was reported as stuck; 0 for not
	givenUp  bool          // its slot is another's
	ended    *entry
	copied   bool
	back     bool // given back: an update after the run, or without one
}

// counted tells whether attempts are counted in the text.
func (d *delivery) counted() bool { return strings.HasPrefix(d.entry.text, thisMark) }

// said tells whether the run of the delivery has ended like this.
func (d *delivery) said(result string) bool {
	return d.ended != nil && strings.HasPrefix(d.ended.said, result)
}

// has tells whether the message may have that body.
func (d *delivery) has(body string) bool { return slices.Contains(d.bodies, body) }

// holds tells whether the message may have that text.
func (d *delivery) holds(text string) bool {
	if text == d.entry.text {
		return true
	}
	head, body, _, err := codec.Open(text, codec.Auto)
	return err == nil && head.ID == d.head.ID && d.has(string(body))
}

// over is when the handler, or what there was without one, had ended.
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
	return "ended: " + d.ended.said
}

// save books what a handler did to its message.
func (b *books) save(d *delivery, e entry) {
	switch {
	case e.kind == saving:
		d.bodies = append(d.bodies, e.text)
	case e.said == "":
		d.bodies = []string{e.text}
	case e.said != queue.ErrOutcomeUnknown.Error(): // that try; one before may have been the same
		if i := slices.Index(d.bodies, e.text); i >= 0 {
			d.bodies = slices.Delete(d.bodies, i, i+1)
		}
	}
}

// failed tells whether its handler has failed, by itself or because its time was up. One
// that was interrupted by the loss of its lease or by the stop has not, whatever it said.
func (d *delivery) failed() bool {
	return d.said(didFail) && (d.cut == 0 || d.cause == dispatcher.ErrTimeout.Error())
}

// missing is how many deliveries before this one ended in nothing, as far as is recorded.
func (d *delivery) missing() int64 { return d.entry.count - 1 - d.head.Settled }

// starts tells whether an update with the text records that the handler is about to start.
// A worker that cannot read the message gives it back with the text that it has.
func (b *books) starts(d *delivery, text string) bool {
	if d.account.job.form == newer && b.staff[d.who].plan.release < 2 {
		return false
	}
	head, _, format, err := codec.Open(text, codec.Auto)
	return err == nil && format == codec.Envelope && d.began == nil && head.Starts > 0 && head.Settled == d.head.Settled
}

// before is the deliveries since the last settlement that was recorded when it was delivered.
func (d *delivery) before() []*delivery {
	return d.account.deliveries[d.settled : d.entry.count-1]
}

// lost is how many starts of handlers may have ended their workers, as the worker of this
// delivery can know it: those that it recorded itself did not, unless they have not ended,
// and others may have left theirs out.
func (d *delivery) lost() (n int) {
	for _, o := range d.before() {
		running := o.began != nil && (o.ended == nil || o.ended.at > d.entry.at)
		if o.noted && (o.who != d.who || running) {
			n++
		}
	}
	return min(n, d.head.Starts)
}

// killed counts the runs before this one, since the last settlement, that have not ended.
func (d *delivery) killed() (n int) {
	for _, o := range d.before() {
		if o.began != nil && o.ended == nil {
			n++
		}
	}
	return n
}

// isFirst tells whether its worker was never given the message since the last record, and so
// cannot know more of it than it says.
func (d *delivery) isFirst() bool {
	return !slices.ContainsFunc(d.before(), func(o *delivery) bool { return o.who == d.who })
}

// runs is how often the message was handled.
func (a *account) runs() (n int) {
	for _, d := range a.deliveries {
		if d.began != nil {
			n++
		}
	}
	return n
}

package dispatcher

import (
	"math"
	"strings"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/queue"
)

// opened is a message as it stands in its queue, with its lease and the parts of its text. open
// writes it. The stages starts and groups, and [Message.Save], change the text and the head later.
type opened struct {
	dispatcher *Dispatcher
	queued     queue.Message // its receipt is from the dequeue: the lease has the newest
	lease      lease

	head   envelope.Head
	body   []byte // as the text carried it; nil if unreadable, empty if the message has a claim; handlers may change it
	format codec.Format
	kind   *Kind // of its job; nil if the queue has no kinds or its kind is unknown
	starts int   // how many of the recorded starts count

	excused bool // its attempt does not count; by outages
}

// recordPrefix is how a [poison.Record] begins.
const recordPrefix = `{"millracePoison":`

// open reads the text of the message and passes it on, unless this worker must leave it alone.
func (v *delivery) open() {
	unread := v.read()
	v.admission.lastStart = v.dispatcher.starts.count(&v.opened)
	took := time.Since(v.lease.asked)
	v.dispatcher.visibility.recordDequeue(took, v.lease.visibility)
	switch {
	case took >= v.lease.visibility-safetyMargin:
		// The response took as long as the lease: another worker may have the message.
		v.refuse(decision{outcome: Lost, err: ErrLeaseExpired})
	case !v.admission.reserved, v.admission.paused && v.recordable():
		v.refuse(decision{outcome: Returned})
	case v.admission.paused && v.attempt() < v.maxAttempts():
		v.refuse(decision{outcome: Returned, delay: retryDelay(v.queued.ID, v.attempt())})
	case unread != nil:
		v.refuse(unreadable(&v.opened, unread))
	default:
		v.admit()
	}
}

// read reads the text. With AcceptForeign an envelope is recognised in any format. A poison record of this
// queue is a job that somebody has put back by hand: it starts anew.
func (o *opened) read() (err error) {
	d, open := o.dispatcher, envelope.Open
	if strings.HasPrefix(o.queued.Text, recordPrefix) {
		if r, err := poisonrecord.Parse(o.queued.Text); err == nil && r.Queue == d.name.Queue {
			if text, err := poisonrecord.Anew(r.Text); err == nil {
				o.queued.Text, o.lease.text = text, text
			}
		}
	}
	if d.options.AcceptForeign {
		open = envelope.OpenForeign
	}
	o.head, o.body, o.format, err = open(o.queued.Text, d.options.Format, d.features...)
	o.head.Moved = "" // likewise
	if err == nil && d.kinds != nil {
		o.kind = d.kinds[o.head.Kind]
	}
	return err
}

// enveloped reports whether the message has an envelope, which counts attempts.
func (o *opened) enveloped() bool { return o.format == codec.Envelope }

// recordable reports whether an update of the message can record the outcome of a delivery.
func (o *opened) recordable() bool {
	return o.enveloped() || o.dispatcher.options.AcceptForeign && o.format != codec.Auto
}

// attempt returns the number of this attempt: the recorded failures plus one, or for a message
// without an envelope its dequeue count.
func (o *opened) attempt() int {
	if o.enveloped() {
		return o.head.Attempts + 1
	}
	return int(min(o.queued.DequeueCount, 1<<30))
}

// maxAttempts returns the number of the last attempt. One that is excused is not the last.
func (o *opened) maxAttempts() int {
	n := o.dispatcher.maxAttempts()
	if o.kind != nil && o.kind.options.MaxAttempts > 0 {
		n = o.kind.options.MaxAttempts
	}
	if o.excused {
		n = max(n, o.attempt()+1)
	}
	return n
}

// lostDeliveries returns how many earlier deliveries are not accounted for.
func (o *opened) lostDeliveries() int64 { return max(o.before()-o.head.Settled, 0) }

// before returns how many deliveries the message had before.
func (o *opened) before() int64 { return max(o.queued.DequeueCount-1, 0) }

// lifeEnds reports whether less than this much is left until the message expires.
func (o *opened) lifeEnds(left time.Duration) bool {
	return !o.lease.messageEnd.IsZero() && time.Until(o.lease.messageEnd) < left
}

// withinLife returns the delay, shortened to the message's remaining life.
func (o *opened) withinLife(delay time.Duration) time.Duration {
	if o.lease.messageEnd.IsZero() {
		return delay
	}
	return min(delay, max(time.Until(o.lease.messageEnd), 0).Truncate(time.Second))
}

// longestWait returns how long the message can wait, in whole seconds, and then still be handled
// before it expires.
func (o *opened) longestWait() time.Duration {
	if o.lease.messageEnd.IsZero() {
		return math.MaxInt64
	}
	return (time.Until(o.lease.messageEnd) - o.dispatcher.Visibility()).Truncate(time.Second)
}

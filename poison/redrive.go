package poison

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/queue"
)

// RedriveOptions says what [Redrive] sends and where. Account or To is required.
type RedriveOptions struct {
	// Account opens the queues that records name, of which every one must exist. Records of an
	// account with another name are skipped. Defaults to nil: To is where all go.
	Account queue.Account

	// To is where all chosen messages go, whatever their records say, and foreign messages too.
	// Defaults to nil: records go back to where they came from, and foreign messages are skipped.
	To queue.Queue

	// TTL is how long a message lives from now on, or [queue.Forever]. Defaults to 0: for what
	// remained of its life; a message whose life has ended is not sent but counted as expired.
	TTL time.Duration

	// Filter chooses messages. Defaults to all.
	Filter Filter

	// DryRun sends and deletes nothing, and counts as redriven what would be. It reads the queue
	// as a redrive does, with the same cost for what is given back. Defaults to false.
	DryRun bool

	// Rate is how many messages a second are redriven at most, in bursts of a second's worth.
	// Defaults to 0, no bound. Negative is an error.
	Rate float64

	// Parallel is how many messages are worked on at a time, and how many may be in their queues
	// twice after a kill. Defaults to 1. Negative is an error.
	Parallel int

	// Max is how many messages are redriven at most. Defaults to 0, all. Negative is an error.
	Max int

	// Lease is how long a page of messages is hidden while it is worked on, in whole seconds, at
	// least 2 s. A process that is killed leaves its page hidden so long. Defaults to 30 s.
	Lease time.Duration

	// Progress is called after each page and each message that was worked on, never by two
	// goroutines at a time. It must not wait. Defaults to nil, no calls.
	Progress func(Report)
}

// Redrive sends the messages of a poison queue that the filter chooses back to the queues that
// they came from, and then deletes them. A redriven job starts anew: its attempts, settlements
// and starts are 0 and it is not poison, but it keeps its id, the time it was sent, its trace and
// the reference to a body that is elsewhere. Of a group, what is done stays done.
//
// A message is deleted only when its copy is durable, so that a kill loses nothing and leaves at
// most Parallel messages twice. What [Redrive] had in hand comes up again when the lease ends.
// Several may run at once, also beside a listener.
//
// The queue is read page by page under a lease, and what is not chosen is given back at once: 1/32
// of a request a message, and one for each that is given back, whose place in the queue, and
// dequeue count if it has no envelope, change. Each redriven message costs two. What comes while
// it runs is left, so that jobs which fail again do not go round.
//
// Redrive ends early, with an error and the report so far, when ctx ends, when the poison queue
// cannot be read, and when a request is not authorized or fails for longer than the lease allows.
// What fails for one message alone is only in the report.
func Redrive(ctx context.Context, q queue.Queue, o *RedriveOptions) (Report, error) {
	if o == nil || o.To == nil && o.Account == nil {
		return Report{}, errors.New("redrive: neither To nor Account says where the messages go")
	}
	if o.To != nil && o.To.Name() == q.Name() {
		return Report{}, fmt.Errorf("redrive: the messages of %v would go to that queue itself", q.Name())
	}
	if o.TTL != 0 && o.TTL != queue.Forever && o.TTL < queue.MinTTL {
		return Report{}, fmt.Errorf("redrive: a TTL of %v: it must be at least %v, or queue.Forever", o.TTL, queue.MinTTL)
	}
	p := &planner{from: q.Name(), options: o, opened: make(map[string]queue.Queue)}
	s := &sweep{
		queue: q, filter: o.Filter, dryRun: o.DryRun, rate: o.Rate, parallel: o.Parallel,
		max: o.Max, lease: o.Lease, progress: o.Progress, done: Counts{Redriven: 1}, cause: request.CauseRedrive,
		plan: p.plan,
	}
	return s.run(ctx)
}

// send is a message on its way to a queue.
type send struct {
	to   queue.Queue
	text string
	ttl  time.Duration
}

// planner decides where messages go, and as what.
type planner struct {
	from    queue.Name
	options *RedriveOptions

	mu     sync.Mutex
	opened map[string]queue.Queue // guarded by mu
}

// errExpired means that the life of a message has ended.
var errExpired = errors.New("its life has ended: give it another to send it nevertheless")

// skipError is why a message is left where it is though no request failed.
type skipError struct{ error }

// plan returns what is sent for an entry at this time of the service.
func (p *planner) plan(e *Entry, now time.Time) (*send, error) {
	if e.Record.Version > version {
		_, err := ParseRecord(e.Text)
		return nil, skipError{fmt.Errorf("redrive it with a newer release: %w", err)}
	}
	to, err := p.destination(e)
	if err != nil {
		return nil, skipError{err}
	}
	text, err := anew(e.Original())
	if err != nil {
		return nil, skipError{err}
	}
	ttl, err := p.life(e, now)
	if err != nil {
		return nil, err
	}
	return &send{to, text, ttl}, nil
}

// destination returns where a message goes.
func (p *planner) destination(e *Entry) (queue.Queue, error) {
	o := p.options
	r := &e.Record
	switch {
	case o.To != nil:
		return o.To, nil
	case e.Foreign():
		return nil, errors.New("it is no record and does not say where it came from: name a queue to send it to")
	case r.Account != "" && r.Account != o.Account.Name():
		return nil, fmt.Errorf("it came from account %s, and this is %s: name a queue to send it to", r.Account, o.Account.Name())
	case r.Queue == p.from.Queue:
		return nil, errors.New("it came from the poison queue itself: name a queue to send it to")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if q := p.opened[r.Queue]; q != nil {
		return q, nil
	}
	q, err := o.Account.Open(r.Queue)
	if err != nil {
		return nil, fmt.Errorf("open the queue that it came from: %w", err)
	}
	p.opened[r.Queue] = q
	return q, nil
}

func (p *planner) life(e *Entry, now time.Time) (time.Duration, error) {
	if p.options.TTL != 0 {
		return p.options.TTL, nil
	}
	var end time.Time
	switch {
	case !e.Foreign() && e.Record.Expires == nil,
		e.Foreign() && (e.Expires.IsZero() || e.Expires.Year() >= neverExpires):
		return queue.Forever, nil
	case e.Foreign():
		end = e.Expires
	default:
		end = *e.Record.Expires
	}
	left := end.Sub(now).Truncate(time.Second)
	if left < queue.MinTTL {
		return 0, errExpired
	}
	return left, nil
}

// anew returns the text of a message as if it had never been delivered. What has no envelope, or a
// broken one, stays as it is: the envelope of a newer release is left to that.
func anew(text string) (string, error) {
	head, body, _, err := open(text, codec.Envelope)
	switch {
	case errors.Is(err, codec.ErrNewer):
		return "", fmt.Errorf("redrive it with a newer release: %w", err)
	case err != nil:
		return text, nil //nolint:nilerr // a worker is to say what is wrong with it
	}
	unmark(&head)
	return codec.Seal(head, body, codec.Envelope)
}

// unmark removes from the head what was recorded of deliveries. What is done of a group stays.
func unmark(head *codec.Head) {
	head.Attempts, head.Settled, head.Starts, head.Fingerprint, head.Poison, head.Moved = 0, 0, 0, "", "", ""
	head.Failed, head.Failure, head.Started = "", "", ""
}

// Anew returns the text of the message as if it had never been delivered, as [Redrive] sends it. A text
// without an envelope stays as it is. One in an envelope of a newer release is an error that wraps
// codec.ErrNewer.
func (r Record) Anew() (string, error) { return anew(r.Text) }

// PurgeOptions says what [Purge] deletes and how. Nil and the zero value mean everything, one
// message after the other.
type PurgeOptions struct {
	// Filter chooses messages. Defaults to all, foreign ones included.
	Filter Filter

	// DryRun deletes nothing, and counts as purged what would be. It reads the queue as a purge
	// does, with the same cost for what is given back. Defaults to false.
	DryRun bool

	// Rate is how many messages a second are purged at most. Defaults to 0, no bound. Negative
	// is an error.
	Rate float64

	// Parallel is how many messages are worked on at a time. Defaults to 1. Negative is an error.
	Parallel int

	// Max is how many messages are purged at most. Defaults to 0, all. Negative is an error.
	Max int

	// Lease is how long a page of messages is hidden while it is worked on, in whole seconds, at
	// least 2 s. A process that is killed leaves its page hidden so long. Defaults to 30 s.
	Lease time.Duration

	// Progress is called after each page and each message that was worked on, never by two
	// goroutines at a time. It must not wait. Defaults to nil, no calls.
	Progress func(Report)
}

// Purge deletes the messages of a poison queue that the filter chooses, for good. Messages that
// come while it runs are left. [Redrive] says how the queue is read, what that costs, and what the
// errors are. A body that is stored elsewhere is not deleted.
func Purge(ctx context.Context, q queue.Queue, o *PurgeOptions) (Report, error) {
	if o == nil {
		o = new(PurgeOptions)
	}
	s := &sweep{
		queue: q, filter: o.Filter, dryRun: o.DryRun, rate: o.Rate, parallel: o.Parallel,
		max: o.Max, lease: o.Lease, progress: o.Progress, done: Counts{Purged: 1}, cause: request.CausePurge,
		plan: func(*Entry, time.Time) (*send, error) { return nil, nil },
	}
	return s.run(ctx)
}

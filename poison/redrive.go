package poison

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// Redrive sends messages from the poison queue of q back to q, and then deletes them. The filter
// chooses the messages. A record that names another queue than q goes there if Account is set, and
// is skipped otherwise. To sends all of them to one queue.
//
// A redriven job starts anew: its attempts, settlements and starts are 0 and it is not poison, but
// it keeps its id, the time it was sent, its trace and the reference to a body that is elsewhere. Of
// a group, what is done stays done.
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
func Redrive(ctx context.Context, q queue.Queue, o *Options) (Summary, error) {
	all, err := o.withDefaults(redriving, q)
	if err != nil {
		return Summary{}, err
	}
	if all.To != nil && all.To.Name() == all.From.Name() {
		return Summary{}, fmt.Errorf("redrive poison messages of %v: Options.To is the poison queue itself. Set another queue", q.Name())
	}
	p := &planner{queue: q, options: all, opened: make(map[string]queue.Queue)}
	s := &sweep{Options: *all, cause: request.CauseRedrive, plan: p.plan}
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
	queue   queue.Queue // whose poison this is
	options *Options

	mu     sync.Mutex
	opened map[string]queue.Queue // guarded by mu
}

// errExpired means that the life of a message has ended.
var errExpired = errors.New("its life has ended: give it another to send it nevertheless")

// skipError is why a message is left where it is though no request failed.
type skipError struct{ error }

// plan returns what is sent for an entry at this time of the service.
func (p *planner) plan(e *poisonrecord.Entry, now time.Time) (*send, error) {
	if e.Newer != nil {
		return nil, skipError{fmt.Errorf("redrive it with a newer release: %w", e.Newer)}
	}
	to, err := p.destination(e)
	if err != nil {
		return nil, skipError{err}
	}
	text, err := poisonrecord.Anew(e.Record.Text)
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
func (p *planner) destination(e *poisonrecord.Entry) (queue.Queue, error) {
	o, from, here := p.options, p.options.From.Name(), p.queue.Name()
	r := &e.Record
	named := queue.Name{Account: cmp.Or(r.Account, from.Account), Queue: r.Queue}
	switch {
	case o.To != nil:
		return o.To, nil
	case e.Foreign:
		return nil, errors.New("it is not a record and does not say where it came from: name a queue to send it to")
	case named == from:
		return nil, errors.New("it came from the poison queue itself: name a queue to send it to")
	case named == here:
		return p.queue, nil
	case o.Account == nil:
		return nil, fmt.Errorf("it came from %v and not from %v: redrive that queue, or name a queue to send it to", named, here)
	case r.Account != "" && r.Account != o.Account.Name():
		return nil, fmt.Errorf("it came from account %s, and this is %s: name a queue to send it to", r.Account, o.Account.Name())
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

func (p *planner) life(e *poisonrecord.Entry, now time.Time) (time.Duration, error) {
	if p.options.TTL != 0 {
		return p.options.TTL, nil
	}
	end := e.Record.Expires
	if end == nil {
		return queue.Forever, nil
	}
	left := end.Sub(now).Truncate(time.Second)
	if left < driver.MinTTL {
		return 0, errExpired
	}
	return left, nil
}

// Purge deletes messages of the poison queue of q, for good. The filter chooses them. Messages that
// come while it runs are left. [Redrive] says how the queue is read, what that costs, and what the
// errors are. A body that is stored elsewhere is not deleted.
func Purge(ctx context.Context, q queue.Queue, o *Options) (Summary, error) {
	all, err := o.withDefaults(purging, q)
	if err != nil {
		return Summary{}, err
	}
	s := &sweep{Options: *all, cause: request.CausePurge, plan: nothing}
	return s.run(ctx)
}

// nothing plans to send nothing.
func nothing(*poisonrecord.Entry, time.Time) (*send, error) { return nil, nil }

package paired

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// State is what a [Queue] knows of itself. Its numbers are those of this process since [New].
type State struct {
	Queue  queue.Name `json:"queue"`
	Status Status     `json:"status"`

	// Since is when the status began; zero if it never changed.
	Since time.Time `json:"since,omitzero"`

	// Failures are the sends in a row that the primary queue failed, of those that count. While the queue is
	// failed over, those before it.
	Failures int64 `json:"failures"`

	// LastError is what the primary queue said last to a send or a probe, if that was an error. Errors that
	// are the message's fault are left out.
	LastError error `json:"-"`

	Failovers  int64 `json:"failovers"`   // how often sends began to go to the backlog queues
	Diverted   int64 `json:"diverted"`    // messages that backlog queues have accepted
	MaybeTwice int64 `json:"maybe_twice"` // those of them that the primary queue may have accepted as well
	Unanswered int64 `json:"unanswered"`  // sends to any of the queues without a response; there are no more duplicates than that
	Refused    int64 `json:"refused"`     // sends that failed because both were down
	Probes     int64 `json:"probes"`      // requests that found out whether the primary queue accepts again

	// SecondaryRequests are the requests to the secondary account that Pair, the sends and [Queue.Backlog] have
	// made, which are what pairing costs in this process. A meter around the secondary queue prices them.
	SecondaryRequests int64 `json:"secondary_requests"`

	Backlogs []BacklogState `json:"backlogs"`
}

// BacklogState is what a [Queue] knows of one of its backlog queues.
type BacklogState struct {
	Queue    queue.Name `json:"queue"`
	Accepted int64      `json:"accepted"` // messages
	Failed   int64      `json:"failed"`   // sends

	// RestsUntil is when the queue is in the rotation again, after a failure; zero or past if it is in it.
	RestsUntil time.Time `json:"rests_until,omitzero"`

	// LastError is why it rests; nil since it has accepted a message.
	LastError error `json:"-"`
}

// State returns a snapshot. It sends no request.
func (q *Queue) State() State {
	f := q.failover
	f.mu.Lock()
	s := State{
		Queue: f.queue, Status: f.status, Since: f.since, Failures: f.outage.Failures, LastError: f.lastErr,
		Failovers: f.counts.failovers, Diverted: f.counts.diverted, MaybeTwice: f.counts.maybeTwice, Unanswered: f.counts.unanswered,
		Refused: f.counts.refused, Probes: f.counts.probes,
	}
	f.mu.Unlock()
	r := q.rotation
	r.mu.Lock()
	defer r.mu.Unlock()
	s.SecondaryRequests = r.requests
	for _, b := range r.all {
		s.Backlogs = append(s.Backlogs, BacklogState{b.queue.Name(), b.accepted, b.failed, b.restsUntil, b.lastErr})
	}
	return s
}

// Backlog is how many messages wait in backlog queues.
type Backlog struct {
	Depth  int64          `json:"depth"` // their sum, of the queues that could be read
	Queues []BacklogDepth `json:"queues"`
}

// BacklogDepth is how many messages wait in one backlog queue.
type BacklogDepth struct {
	Queue queue.Name `json:"queue"`
	Depth int64      `json:"depth"` // approximate, and never too low
	Err   error      `json:"-"`     // why it could not be read
}

// Backlog reads the depths of the backlog queues, with a request for each. If one cannot be read that is an
// error, and the others are returned all the same.
func (q *Queue) Backlog(ctx context.Context) (Backlog, error) {
	all := Backlog{Queues: make([]BacklogDepth, len(q.rotation.all))}
	ctx = queue.WithCause(ctx, queue.CauseDepth)
	var readings sync.WaitGroup
	for i, b := range q.rotation.all {
		readings.Go(func() {
			q.rotation.request()
			p, err := b.queue.Properties(ctx)
			all.Queues[i] = BacklogDepth{b.queue.Name(), p.Depth, err}
		})
	}
	readings.Wait()
	var errs []error
	for _, one := range all.Queues {
		if one.Err != nil {
			errs = append(errs, one.Err)
		}
		all.Depth += one.Depth
	}
	if len(errs) > 0 {
		return all, fmt.Errorf("read the backlog of %v: %d of %d queues cannot be read: %w", q.Name(), len(errs), len(all.Queues), errs[0])
	}
	return all, nil
}

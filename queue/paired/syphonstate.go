package paired

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/queue"
)

// SyphonState is what a [Syphon] does, and what it has done since [NewSyphon]. How many messages wait is told by
// [Queue.Backlog].
type SyphonState struct {
	// Running reports whether Run runs.
	Running bool `json:"running"`

	// Moved is the number of messages that were copied to the primary queue.
	Moved int64 `json:"moved"`

	// Doubtful is how many of them may be there twice: the outcome of the copy is unknown, or the
	// delete failed after it. It is an upper bound, but a kill is not in it: see
	// [SyphonOptions].Parallel.
	Doubtful int64 `json:"doubtful"`

	// Expired is the number of messages whose life ended while the syphon had them in hand. What expires
	// in a backlog queue is dropped by the service, as it would have been in the primary queue, and
	// nobody sees it.
	Expired int64 `json:"expired"`

	// Unreadable is the number of messages in backlog queues that are no records, are those of a newer
	// release, or belong into a queue to which the syphon brings nothing; Refused is the number of those
	// that the primary queue refuses as invalid or too large. They are left in their backlog queues,
	// hidden for a minute to an hour at a time. Each counts once, as long as fewer than 10,000 are
	// remembered.
	Unreadable int64 `json:"unreadable"`
	Refused    int64 `json:"refused"`

	// InHand is the number of messages that were taken and are not yet done with.
	InHand int64 `json:"in_hand"`

	// Failing is since when the primary queue accepts no copies, or the first of several; zero if it
	// does. The syphon then rests, and tries with one message at a time.
	Failing time.Time `json:"failing,omitzero"`

	// LastError is the last error, and LastErrorAt when it came. Nil and zero if there was none.
	LastError   error     `json:"-"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`

	// Requests is what was sent.
	Requests SyphonRequests `json:"requests"`

	// Backlogs are the backlog queues, in the order of the pair.
	Backlogs []SyphonedBacklog `json:"backlogs"`
}

// SyphonRequests counts the requests of a [Syphon]. Each is one transaction.
type SyphonRequests struct {
	Polls      int64 `json:"polls"`       // dequeues of backlog queues
	EmptyPolls int64 `json:"empty_polls"` // those that found nothing
	Copies     int64 `json:"copies"`      // puts to the primary queue
	Deletes    int64 `json:"deletes"`     // deletes from backlog queues
	GiveBacks  int64 `json:"give_backs"`  // updates that made a message visible again, now or later
}

// Total returns the number of all requests.
func (r SyphonRequests) Total() int64 { return r.Polls + r.Copies + r.Deletes + r.GiveBacks }

// SyphonedBacklog is a backlog queue as a [Syphon] sees it.
type SyphonedBacklog struct {
	Queue     queue.Name `json:"queue"`
	Polled    time.Time  `json:"polled,omitzero"` // start of the last poll; zero if there was none
	Empty     bool       `json:"empty"`           // whether the last poll that succeeded found nothing
	LastError error      `json:"-"`               // of the last poll; nil if it succeeded
}

// State returns what the syphon does and has done. It sends no request.
func (s *Syphon) State() SyphonState {
	c := &s.counts
	state := SyphonState{
		Moved: c.moved.Load(), Doubtful: c.doubtful.Load(), Expired: c.expired.Load(),
		Unreadable: c.unreadable.Load(), Refused: c.refused.Load(), InHand: c.inHand.Load(),
		Requests: SyphonRequests{
			Polls: c.polls.Load(), EmptyPolls: c.emptyPolls.Load(), Copies: c.copies.Load(),
			Deletes: c.deletes.Load(), GiveBacks: c.giveBacks.Load(),
		},
	}
	s.mu.Lock()
	state.Running = s.runs
	s.mu.Unlock()
	state.LastErrorAt, state.LastError = s.errs.get()
	if s.homes != nil {
		state.Failing = s.homes.failing()
	}
	for _, l := range s.lanes {
		state.Backlogs = append(state.Backlogs, l.snapshot())
	}
	return state
}

type counter = atomic.Int64

type syphonCounts struct {
	moved, doubtful, expired, unreadable, refused, inHand counter
	polling                                               counter // dequeues in flight
	polls, emptyPolls, copies, deletes, giveBacks         counter
}

type lastError struct {
	mu  sync.Mutex
	err error     // guarded by mu
	at  time.Time // guarded by mu
}

func (e *lastError) set(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.err, e.at = err, time.Now()
}

func (e *lastError) get() (at time.Time, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at, e.err
}

// maxKeys bounds a set of messages.
const maxKeys = 10_000

// messageKey identifies a message of any queue.
type messageKey struct {
	queue queue.Name
	id    queue.ID
}

// keys is a bounded set of messages: the oldest go first. It is safe for concurrent use.
type keys struct {
	mu    sync.Mutex
	in    map[messageKey]struct{} // guarded by mu
	order []messageKey            // ring of them in the order of addition; guarded by mu
	next  int                     // of order, once it is full; guarded by mu
}

func newKeys() *keys { return &keys{in: make(map[messageKey]struct{})} }

func (k *keys) add(m messageKey) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.in[m]; known {
		return false
	}
	k.in[m] = struct{}{}
	if len(k.order) < maxKeys {
		k.order = append(k.order, m)
		return true
	}
	delete(k.in, k.order[k.next])
	k.order[k.next] = m
	k.next = (k.next + 1) % maxKeys
	return true
}

func (k *keys) has(m messageKey) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, is := k.in[m]
	return is
}

package sharded

import (
	"time"

	"github.com/millrace/millrace/queue"
)

// State is what a [Queue] knows of one shard without asking it.
type State struct {
	Queue    queue.Name `json:"queue"`
	Accepted int64      `json:"accepted"` // messages of this Queue that the shard has accepted

	// RestsUntil is when the shard is tried again. The zero time means that it takes part; a time that has
	// passed that the next message tries it, or that one is doing so.
	RestsUntil time.Time `json:"restsUntil,omitzero"`

	// Err is the last failure for which it rests, nil if it takes part.
	Err error `json:"-"`
}

// States returns the states of the shards, in the order in which they were added. It sends no request.
func (q *Queue) States() []State {
	q.mu.Lock()
	defer q.mu.Unlock()
	states := make([]State, len(q.shards))
	for i, s := range q.shards {
		states[i] = State{Queue: s.name, Accepted: s.accepted, RestsUntil: s.probe.Due(), Err: s.err}
	}
	return states
}

package localqueue

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue/storage"
)

// Open returns an engine over a store, with everything that the store has. The engine takes
// ownership of the store: [Engine.Close] closes it. If Open fails, the caller still owns
// it.
//
// A store that was used before keeps its secret, which ids and receipts are derived from;
// [Options].Seed then has no effect.
func Open(store storage.Store, o *Options) (*Engine, error) {
	saved, err := store.Load()
	if err != nil {
		return nil, fmt.Errorf("localqueue: load the store: %w", err)
	}
	if saved.Secret == ([32]byte{}) {
		saved.Secret = newSecret(o.seed())
		if _, err := store.Commit([]storage.Change{storage.SecretSaved(saved.Secret)}); err != nil {
			return nil, fmt.Errorf("localqueue: initialize the store: %w", err)
		}
	}
	e := newEngine(o, saved.Secret)
	if err := e.load(saved); err != nil {
		return nil, err
	}
	e.committer = newCommitter(store, e.clock)
	go e.committer.run()
	return e, nil
}

// load fills an engine that is not shared yet.
func (e *Engine) load(saved storage.Saved) error {
	e.ordinal.Store(saved.Ordinal)
	for _, a := range saved.Accounts {
		e.account(a.Name, true).properties = a.Properties
	}
	byOrdinal := make(map[uint64]*queueState, len(saved.Queues))
	for _, q := range saved.Queues {
		s := &queueState{
			ordinal:  q.Ordinal,
			name:     q.Name,
			metadata: q.Metadata,
			policy:   q.Policy,
			enqueued: q.Enqueued,
			receipts: q.Receipts,
			reserved: highWater{q.Enqueued, q.Receipts},
			backlog:  newBacklog(),
		}
		byOrdinal[q.Ordinal] = s
		e.account(q.Name.Account, true).queues[q.Name.Queue] = s
	}
	for _, a := range e.accounts {
		for name := range a.queues {
			a.names = append(a.names, name)
		}
		slices.Sort(a.names)
	}
	newest, err := loadMessages(saved, byOrdinal)
	if err != nil {
		return err
	}
	e.clock = newClock(max(instant(saved.Time), newest))
	slices.SortFunc(saved.Deleting, func(a, b storage.DeletingName) int { return cmp.Compare(a.Until, b.Until) })
	at := e.clock.now()
	for _, l := range saved.Deleting {
		if instant(l.Until) > at {
			e.account(l.Name.Account, true).markDeleting(l.Name.Queue, instant(l.Until))
		}
	}
	return nil
}

// loadMessages also returns when the newest message was enqueued.
func loadMessages(saved storage.Saved, queues map[uint64]*queueState) (newest instant, err error) {
	if saved.Messages == nil {
		return 0, nil
	}
	for state := range saved.Messages {
		s := queues[state.Queue]
		if s == nil {
			return 0, &queue.Error{Kind: storage.ErrDamaged, Detail: fmt.Sprintf("the store has a message of queue %d, but no such queue", state.Queue)}
		}
		s.enqueued = max(s.enqueued, state.Sequence)
		s.receipts = max(s.receipts, state.Receipt)
		newest = max(newest, instant(state.Inserted))
		s.backlog.add(&message{
			sequence: state.Sequence,
			inserted: instant(state.Inserted),
			due:      instant(state.Due),
			expires:  instant(state.Expires),
			dequeues: state.Dequeues,
			receipt:  state.Receipt,
		})
	}
	return newest, nil
}

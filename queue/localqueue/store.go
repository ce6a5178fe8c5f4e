package localqueue

import (
	"errors"
	"iter"

	"github.com/millrace/millrace/queue"
)

// Store makes the state of an [Engine] durable. The engine keeps everything in memory
// except the texts of messages, and decides everything there; a store only records the
// changes. Package filequeue has a store in a directory.
//
// The engine calls Load once, before anything else, and Commit from one goroutine at a
// time. View may be called from any goroutine, at any time between Load and Close.
type Store interface {
	// Load returns the state of the store.
	Load() (Saved, error)

	// Commit makes the changes durable, in their order and atomically. Nil means that they
	// survive a kill and a power cut. An error means that none of them was kept or ever will
	// be, unless it is [ErrUncertain]. If more is true, there is work left over, such as
	// removing the messages of a cleared queue, and a further Commit, even one of no changes,
	// continues it.
	Commit(changes []Change) (more bool, err error)

	// View returns the texts as of the last Commit. It is cheap to open and must be closed
	// soon.
	View() (View, error)

	// Close releases the store. No other call may be under way.
	Close() error
}

// View reads texts of messages as of when it was opened, whatever is committed meanwhile.
// It is not safe for concurrent use.
type View interface {
	// Text returns the text of a message, or [ErrDamaged] if it cannot be read any more.
	Text(key MessageKey) (string, error)

	// Close ends the view.
	Close()
}

// ErrDamaged means that a message was stored and cannot be read any more.
var ErrDamaged = errors.New("damaged on disk")

// ErrUncertain means that the outcome of a commit is unknown, because the disk failed at
// the very end of it. The store refuses further commits: opening it again shows whether the
// commit was kept.
var ErrUncertain = errors.New("the disk failed at the end of a commit")

// ErrClosed means that the engine was closed. Open it again.
var ErrClosed = errors.New("the engine is closed")

// Saved is the state of a [Store]. The zero value is that of a new store.
type Saved struct {
	// Secret is what ids and receipts are derived from. All zero means that none was saved
	// yet.
	Secret [32]byte

	// Ordinal is the largest ordinal of a queue ever saved, including dropped queues.
	Ordinal uint64

	// Time is the last [CommittedAt] ever saved, 0 if none was. The engine's clock starts no
	// earlier.
	Time int64

	Accounts []AccountState
	Queues   []QueueState
	Deleting []DeletingName

	// Messages yields every message of those queues. Loading is fastest in order of queue and
	// sequence. Nil means none.
	Messages iter.Seq[MessageState]
}

// AccountState is the state of an account without its queues.
type AccountState struct {
	Name       string
	Properties []byte // set by [Engine.SetServiceProperties]; nil for none
}

// QueueState is the state of a queue without its messages.
type QueueState struct {
	Ordinal  uint64 // unique among all queues ever created
	Name     queue.Name
	Metadata map[string]string
	Policy   []byte // set by [Queue.SetAccessPolicy]; nil for none

	// Enqueued and Receipts are high-water marks: no larger sequence and no larger receipt has
	// been given out. They are reserved in advance, so that most commits need not save them.
	Enqueued uint64
	Receipts uint64
}

// DeletingName is the name of a dropped queue that cannot be created again yet.
type DeletingName struct {
	Name  queue.Name
	Until int64 // nanoseconds since 1970
}

// MessageKey identifies a message.
type MessageKey struct {
	Queue    uint64 // the queue's ordinal
	Sequence uint64 // from 1, in order of enqueuing
}

// MessageState is a message without its text. Times are in nanoseconds since 1970.
type MessageState struct {
	MessageKey
	Inserted int64
	Expires  int64 // math.MaxInt64 means never
	Due      int64 // visible at and after
	Dequeues int64
	Receipt  uint64 // number of the newest receipt, counted by queue
}

// Change is one change of the state: one of the types below. The engine never modifies a
// change after it has passed it to a store.
type Change interface{ change() }

type (
	// SecretSaved is the first change of all: the secret that ids and receipts are derived
	// from.
	SecretSaved [32]byte

	// AccountSaved replaces the state of an account.
	AccountSaved AccountState

	// QueueSaved creates a queue, whose name then is not being deleted any more, or replaces
	// its state.
	QueueSaved QueueState

	// QueueCleared removes the messages of a queue up to and including a sequence.
	QueueCleared MessageKey

	// QueueDropped removes a queue and its messages.
	QueueDropped struct {
		Ordinal  uint64
		Deleting DeletingName // Until is 0 if the name is free at once
	}

	// MessageAdded adds a message.
	MessageAdded struct {
		MessageState
		Text string
	}

	// MessageRewritten replaces state and text of a message.
	MessageRewritten struct {
		MessageState
		Text string
	}

	// MessagesUpdated replaces the states of messages and keeps their texts.
	MessagesUpdated []MessageState

	// MessageRemoved removes a message.
	MessageRemoved MessageKey

	// MessagesExpired removes expired messages. It may be delayed: an engine that loads them
	// finds that they have expired.
	MessagesExpired []MessageKey

	// CommittedAt is the time of the commit by the engine's clock, which never goes back, in
	// nanoseconds since 1970.
	CommittedAt int64

	// MessageQuarantined removes a message whose text is [ErrDamaged] from its queue, and
	// keeps the damaged record for people to examine.
	MessageQuarantined MessageKey
)

func (SecretSaved) change()        {}
func (AccountSaved) change()       {}
func (QueueSaved) change()         {}
func (QueueCleared) change()       {}
func (QueueDropped) change()       {}
func (MessageAdded) change()       {}
func (MessageRewritten) change()   {}
func (MessagesUpdated) change()    {}
func (MessageRemoved) change()     {}
func (MessagesExpired) change()    {}
func (MessageQuarantined) change() {}
func (CommittedAt) change()        {}

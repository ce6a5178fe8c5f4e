package localqueue

import (
	"errors"
	"iter"

	"github.com/millrace/millrace/queue"
)

// Store keeps what an [Engine] must not lose. The engine has everything but the
// texts of messages in memory and decides everything there; a store only has to
// write down what became of it. Package filequeue has the one for a file.
//
// The engine calls Load once, before anything else, and Commit from one
// goroutine at a time; View may be called from any, at any time between Load
// and Close.
type Store interface {
	// Load returns everything the store keeps.
	Load() (Saved, error)

	// Commit makes the changes durable, in their order and all together: nil
	// means that they outlive a kill and a power cut, an error that nothing of
	// them was kept or ever will be, unless it is [ErrUncertain]. More means that there is work left over,
	// such as removing what a clear left, that a Commit would go on with, even
	// one of no changes.
	Commit(changes []Change) (more bool, err error)

	// View returns the texts as the last Commit left them. It must be closed,
	// soon, and does no lengthy work itself.
	View() (View, error)

	// Close gives back what the store holds. No other call is under way.
	Close() error
}

// View reads texts of messages as they were when it was opened, whatever is
// committed meanwhile. It is used by one goroutine at a time.
type View interface {
	// Text returns the text of a message. One that cannot be read any more is
	// [ErrDamaged].
	Text(key MessageKey) (string, error)

	// Close ends the view.
	Close()
}

// ErrDamaged means that a message was stored and cannot be read any more.
var ErrDamaged = errors.New("damaged on disk")

// ErrUncertain means that a store cannot say what became of a commit, because the
// disk failed at the very end of it. Nothing can be committed any more: the next
// who opens the store finds either.
var ErrUncertain = errors.New("the disk failed at the end of a commit")

// ErrClosed means that the engine was closed: open it again.
var ErrClosed = errors.New("the engine was closed")

// Saved is what a [Store] keeps. The zero value is a new store's.
type Saved struct {
	// Secret is what ids and receipts are made with. All zero when none was
	// saved yet.
	Secret [32]byte

	// Ordinal is the largest ordinal of a queue ever saved, dropped ones
	// included.
	Ordinal uint64

	// Time is the last [TimePassed] ever saved, 0 when none was. An engine goes
	// on from there when the clock of the machine was set back.
	Time int64

	Accounts []AccountState
	Queues   []QueueState
	Deleting []DeletingName

	// Messages yields every message of those queues. In order of queue and
	// sequence it is fastest. Nil means none.
	Messages iter.Seq[MessageState]
}

// AccountState is what is known of an account besides its queues.
type AccountState struct {
	Name       string
	Properties []byte // as [Engine.SetServiceProperties] had them; nil for none
}

// QueueState is what is known of a queue besides its messages.
type QueueState struct {
	Ordinal  uint64 // unique among all queues ever created
	Name     queue.Name
	Metadata map[string]string
	Policy   []byte // as [Queue.SetAccessPolicy] had it; nil for none

	// Enqueued and Receipts are bounds: no larger sequence and no larger
	// receipt has been given out. They run ahead, so that they need not be
	// saved with every message.
	Enqueued uint64
	Receipts uint64
}

// LeavingName is the name of a dropped queue that is not free yet.
type DeletingName struct {
	Name  queue.Name
	Until int64 // nanoseconds since 1970
}

// MessageKey says which message of which queue is meant.
type MessageKey struct {
	Queue    uint64 // the queue's ordinal
	Sequence uint64 // from 1, in order of enqueuing
}

// MessageState is a message without its text. Times are in nanoseconds since
// 1970.
type MessageState struct {
	MessageKey
	Inserted int64
	Expires  int64 // math.MaxInt64 for never
	Due      int64 // visible from here on
	Dequeues int64
	Receipt  uint64 // ordinal of the newest receipt among those of the queue
}

// Change is one thing that became different: one of the types below. What a
// change holds is never changed after it was given to a store.
type Change interface{ change() }

type (
	// SecretSaved is the first change of all: what ids and receipts are made
	// with.
	SecretSaved [32]byte

	// AccountSaved replaces what is known of an account.
	AccountSaved AccountState

	// QueueSaved creates a queue, whose name then is leaving no more, or
	// replaces what is known of it.
	QueueSaved QueueState

	// QueueCleared takes away the messages of a queue up to a sequence.
	QueueCleared MessageKey

	// QueueDropped takes away a queue and its messages.
	QueueDropped struct {
		Ordinal  uint64
		Deleting DeletingName // its Until is 0 when the name is free at once
	}

	// MessageAdded is a new message.
	MessageAdded struct {
		MessageState
		Text string
	}

	// MessageRewritten replaces the state and the text of a message.
	MessageRewritten struct {
		MessageState
		Text string
	}

	// MessagesMoved replaces the states of messages and keeps their texts.
	MessagesUpdated []MessageState

	// MessageRemoved takes a message away.
	MessageRemoved MessageKey

	// MessagesExpired takes messages away that need not be found missing at
	// once: whoever loads them sees that they are over.
	MessagesExpired []MessageKey

	// TimePassed is when the changes were committed, by the engine's clock, which
	// never goes back: in nanoseconds since 1970.
	CommittedAt int64

	// MessageSetAside takes a message away from its queue whose text is
	// [ErrDamaged], and keeps what there is of it for people to look at.
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

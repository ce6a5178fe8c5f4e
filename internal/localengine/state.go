package localengine

import (
	"iter"

	"github.com/millrace/millrace/queue"
)

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
	Properties []byte // set by Account.SetServiceProperties; nil for none
}

// QueueState is the state of a queue without its messages.
type QueueState struct {
	Ordinal  uint64 // unique among all queues ever created
	Name     queue.Name
	Metadata map[string]string
	Policy   []byte // set by Queue.SetAccessPolicy; nil for none

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

package localengine

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

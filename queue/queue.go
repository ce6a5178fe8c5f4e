package queue

import (
	"context"
	"strings"
	"time"
)

// Name says which queue is meant: queue names are unique within an account
// . The zero value names nothing.
type Name struct {
	Account string
	Queue   string
}

// String returns "account/queue", for people and logs, or the one of the two that is
// known.
func (n Name) String() string {
	if n.Account == "" || n.Queue == "" {
		return n.Account + n.Queue
	}
	return n.Account + "/" + n.Queue
}

// MarshalText returns what [Name.String] does, for JSON and logs.
func (n Name) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText reads what [Name.MarshalText] writes.
func (n *Name) UnmarshalText(text []byte) error {
	account, name, found := strings.Cut(string(text), "/")
	if !found {
		account, name = "", account
	}
	*n = Name{Account: account, Queue: name}
	return nil
}

// ID identifies a message within its queue. It is opaque: the service uses
// GUIDs, but nothing may depend on that.
type ID string

// Receipt proves that a lease is ours: the service's pop receipt. It is
// opaque, changes with every dequeue and every update, and lets its holder
// delete the message, so it is never logged and prints as a placeholder.
type Receipt string

// String hides the receipt from logs and error texts.
func (r Receipt) String() string {
	if r == "" {
		return ""
	}
	return "(receipt)"
}

// GoString hides the receipt from %#v.
func (r Receipt) GoString() string { return r.String() }

// Lease is the right to update and delete one message until its visibility
// ends. The zero value is no lease.
type Lease struct {
	ID      ID
	Receipt Receipt

	// Until is when the message becomes visible again by the service's clock,
	// in whole seconds. It is there to show, never to compute with: our clock
	// and the service's differ. Zero for a peeked message.
	Until time.Time
}

// Message is one message as the service handed it out.
type Message struct {
	Lease

	// Text is what goes over the wire. Only package codec knows what it means.
	Text string

	// DequeueCount is how often the message has been dequeued, this delivery
	// included: 1 at the first, 0 for one that was only enqueued.
	DequeueCount int64

	// Inserted is when the service accepted the message, by its clock.
	Inserted time.Time

	// Expires is when the service drops the message. Never is a date in the
	// year 9999.
	Expires time.Time
}

// EnqueueOptions say when an enqueued message appears and disappears. A nil
// pointer and the zero value mean: at once, and never.
type EnqueueOptions struct {
	// Delay hides the message for this long. At most [MaxVisibility] and less
	// than TTL. Defaults to 0, visible at once.
	Delay time.Duration

	// TTL is how long the message lives, from [MinTTL]. [Forever] means it
	// never expires. Defaults to Forever: the service's own default of seven
	// days loses work silently.
	TTL time.Duration
}

// Properties are what the service knows about a queue.
type Properties struct {
	// Depth is the approximate number of messages: invisible ones and, until
	// the service collects them, expired ones are counted too. It is
	// never lower than the true number.
	Depth int64

	// Metadata are the queue's name-value pairs, with the names in the case
	// the service returned them. Names that differ in case only are one.
	Metadata map[string]string
}

// Queue is one queue of one account. See the package comment for what holds
// for every implementation. A method whose context has ended before the call sends
// nothing, and says so: that is no [ErrOutcomeUnknown].
type Queue interface {
	// Name says which queue this is. It sends nothing.
	Name() Name

	// Enqueue appends one message. The returned message carries the id, a
	// receipt (the producer may delete what it sent), and the times; its
	// DequeueCount is 0. On [ErrOutcomeUnknown] the message may be there, and
	// enqueuing again may make two of it.
	Enqueue(ctx context.Context, text string, o *EnqueueOptions) (Message, error)

	// Dequeue takes up to n messages, 1…[MaxBatch], and hides them for the
	// visibility timeout, [MinVisibility]…[MaxVisibility]. An empty queue
	// answers at once with none.
	Dequeue(ctx context.Context, n int, visibility time.Duration) ([]Message, error)

	// Peek reads up to n visible messages, 1…[MaxBatch], without hiding them.
	// They carry no receipt.
	Peek(ctx context.Context, n int) ([]Message, error)

	// Update replaces the text and lets the message become visible again after
	// the visibility timeout, 0…[MaxVisibility] from now, 0 meaning at once.
	// It spends the lease it is given; the one returned replaces it. The text
	// is always resent: the service would keep an empty one.
	Update(ctx context.Context, l Lease, text string, visibility time.Duration) (Lease, error)

	// Delete takes the message away for good.
	Delete(ctx context.Context, l Lease) error

	// Properties reads depth and metadata.
	Properties(ctx context.Context) (Properties, error)

	// Create makes the queue. One that exists with the same metadata is fine;
	// with other metadata it is [ErrQueueExists]. Nil means no metadata.
	Create(ctx context.Context, metadata map[string]string) error

	// Sibling returns the queue of the same account, behind the same
	// wrappers, whose name has the suffix appended, such as "-poison". It
	// sends nothing; a name that is too long is refused at the first call.
	Sibling(suffix string) Queue
}

// Manager is a [Queue] that can also be administered. Every implementation and
// every wrapper is one if what it wraps is.
type Manager interface {
	Queue

	// SetMetadata replaces the whole set of metadata.
	SetMetadata(ctx context.Context, metadata map[string]string) error

	// Clear deletes all messages. A long one may time out half done, as
	// [ErrOutcomeUnknown] or [ErrThrottled]: repeat it until it succeeds (B-02).
	Clear(ctx context.Context) error

	// Drop deletes the queue and everything in it, for good. For at least 30
	// seconds the service then answers [ErrQueueBeingDeleted] to a Create.
	Drop(ctx context.Context) error
}

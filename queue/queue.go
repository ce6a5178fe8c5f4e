package queue

import (
	"context"
	"iter"
	"strings"
	"time"
)

// Name identifies a queue: its name is unique within an account. The zero value identifies none.
type Name struct {
	Account string
	Queue   string
}

// String returns "account/queue", or the part that is not empty.
func (n Name) String() string {
	if n.Account == "" || n.Queue == "" {
		return n.Account + n.Queue
	}
	return n.Account + "/" + n.Queue
}

// MarshalText returns [Name.String], for JSON and logs.
func (n Name) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText parses what [Name.MarshalText] returns.
func (n *Name) UnmarshalText(text []byte) error {
	account, name, found := strings.Cut(string(text), "/")
	if !found {
		account, name = "", account
	}
	*n = Name{Account: account, Queue: name}
	return nil
}

// ID identifies a message within its queue. It is opaque: the service uses GUIDs, but nothing may
// depend on that.
type ID string

// Receipt is the service's pop receipt, which proves that a lease is ours. It is opaque and
// changes with every dequeue and update. Whoever has it can delete the message, so it is never
// logged and prints as a placeholder.
type Receipt string

// String returns a placeholder, to keep the receipt out of logs and errors.
func (r Receipt) String() string {
	if r == "" {
		return ""
	}
	return "(receipt)"
}

// GoString returns a placeholder for %#v.
func (r Receipt) GoString() string { return r.String() }

// Lease is the right to update and delete a message until its visibility timeout ends. The zero
// value is no lease.
type Lease struct {
	ID      ID
	Receipt Receipt

	// Until is when the message becomes visible again by the service's clock, in whole seconds.
	// It is for display only: our clock and the service's differ. Zero for a peeked message.
	Until time.Time
}

// Message is a message as the service returned it.
type Message struct {
	Lease

	// Text is the message text as sent. Only package codec interprets it.
	Text string

	// DequeueCount is how often the message has been dequeued, including this delivery: 1 at the
	// first, 0 for a message that was only enqueued.
	DequeueCount int64

	// Inserted is when the service accepted the message, by its clock.
	Inserted time.Time

	// Expires is when the service drops the message; for one that never expires, in the year
	// 9999.
	Expires time.Time

	// Queue is the queue of a message that a [Sender] over several queues has enqueued. Elsewhere it
	// is the zero value: the queue is the one that was called.
	Queue Name

	// MaybeTwice reports that another queue of such a Sender may have the message as well: it gave no
	// response, and the message was then sent to Queue. Elsewhere it is false.
	MaybeTwice bool
}

// EnqueueOptions say when an enqueued message becomes visible and when it expires. Nil and the
// zero value mean at once and never.
type EnqueueOptions struct {
	// Delay hides the message for this long, at most [MaxVisibility] and less than TTL. Defaults
	// to 0, visible at once.
	Delay time.Duration

	// TTL is how long the message lives, at least 1 s, or [Forever]. Defaults to Forever:
	// the service's default of seven days would lose work silently.
	TTL time.Duration

	// Key is what the message belongs to. A [Sender] over several queues may choose the queue by it;
	// a queue ignores it. Defaults to none.
	Key string
}

// Properties are a queue's properties.
type Properties struct {
	// Depth is the approximate number of messages, including hidden ones and expired ones that
	// the service has not removed yet. It is never too low.
	Depth int64

	// Metadata are the queue's name-value pairs, with names in the case that the service
	// returned. Names are case-insensitive.
	Metadata map[string]string
}

// Sender is what sending needs of a [Queue]. It may stand for several queues. The package comment says
// what every implementation guarantees of these methods.
type Sender interface {
	// Name returns the queue's name. It sends no request.
	Name() Name

	// Enqueue adds one message. The returned message has the id, a receipt with which the
	// producer may delete it, and the times; its DequeueCount is 0. After [ErrOutcomeUnknown] the
	// message may be in the queue, and enqueuing it again may duplicate it.
	Enqueue(ctx context.Context, text string, o *EnqueueOptions) (Message, error)
}

// Queue is one queue of an account. The package comment says what every implementation
// guarantees.
type Queue interface {
	Sender

	// Dequeue takes up to n messages, 1…[MaxBatch], and hides them for the visibility timeout,
	// 1 s…[MaxVisibility]. It does not wait for messages, and returns n if so many are
	// visible. The visibility timeout may pass the message's expiry, but does not extend its life.
	Dequeue(ctx context.Context, n int, visibility time.Duration) ([]Message, error)

	// Peek returns up to n visible messages, 1…[MaxBatch], without hiding or counting them. Their
	// lease has only the id, and can neither update nor delete.
	Peek(ctx context.Context, n int) ([]Message, error)

	// Update replaces the text and hides the message for the visibility timeout, 0…[MaxVisibility]
	// from now; 0 makes it visible at once. The returned lease replaces l, which is no longer
	// valid. The text must always be sent: an empty one would be stored. Expiry and dequeue count
	// stay. If the message would be hidden beyond its expiry, Update fails with [ErrInvalid], and l
	// stays valid.
	Update(ctx context.Context, l Lease, text string, visibility time.Duration) (Lease, error)

	// Delete deletes the message.
	Delete(ctx context.Context, l Lease) error

	// Properties returns depth and metadata.
	Properties(ctx context.Context) (Properties, error)

	// Create creates the queue; nil and empty mean no metadata. It succeeds if the queue exists
	// with the same metadata, and fails with [ErrQueueExists] if the metadata differ. Either way,
	// the queue and its messages stay as they are.
	Create(ctx context.Context, metadata map[string]string) error

	// Sibling returns the queue of the same account, with the same wrappers, whose name has the
	// suffix appended, such as "-poison". It sends no request. If the name is invalid, every call
	// on the sibling fails with [ErrInvalid]. The sibling of a [Manager] is one too.
	Sibling(suffix string) Queue
}

// Manager is a [Queue] that can also be administered. Every implementation is one, and so is
// every wrapper of one.
type Manager interface {
	Queue

	// SetMetadata replaces all metadata. Nil and empty remove them.
	SetMetadata(ctx context.Context, metadata map[string]string) error

	// Clear deletes all messages, even hidden ones, and keeps the metadata. On a long queue it may
	// time out half done, with [ErrOutcomeUnknown] or [ErrThrottled]: repeat it until it succeeds.
	Clear(ctx context.Context) error

	// Drop deletes the queue and its messages. For at least 30 seconds the service then responds
	// to a Create with [ErrQueueBeingDeleted].
	Drop(ctx context.Context) error
}

// Account is a storage account's queues. Like a [Queue] it sends one request a call and is safe
// for concurrent use.
type Account interface {
	// Name returns the account's name. It sends no request.
	Name() string

	// Open returns the queue with this name, whether or not it exists. It sends no request. The
	// error is [ErrInvalid] if the service would refuse the name.
	Open(name string) (Manager, error)

	// List returns one page of the account's queues whose names begin with the prefix, ordered by
	// name, and the marker of the next page, "" on the last. [ListAll] yields the queues of all pages.
	// The marker is "" for the first page. It is opaque, and stays valid while the list is read, even
	// if queues are created and dropped. The page has at most limit queues, 1…5,000, or 5,000 if limit
	// is 0. It may have fewer, even none, without being the last.
	List(ctx context.Context, prefix, marker string, limit int) (page []Listed, next string, err error)
}

// Listed is one queue in a list.
type Listed struct {
	Name string

	// Metadata are the queue's name-value pairs, as in [Properties].
	Metadata map[string]string
}

// ListAll yields the queues of an account whose names begin with the prefix, ordered by name. It
// requests a page of up to 5,000 queues when one is needed. An error is yielded last, with a
// zero Listed.
func ListAll(ctx context.Context, a Account, prefix string) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		for marker := ""; ; {
			page, next, err := a.List(ctx, prefix, marker, 0)
			if err != nil {
				yield(Listed{}, err)
				return
			}
			for _, q := range page {
				if !yield(q, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			if next == marker {
				yield(Listed{}, &Error{Op: "list", Queue: Name{Account: a.Name()}, Detail: "the next page has the marker of this one"})
				return
			}
			marker = next
		}
	}
}

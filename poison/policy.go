package poison

import (
	"time"

	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/queue"
)

// Suffix is appended to the name of a queue for the name of its poison queue.
const Suffix = poisonrecord.Suffix

// Policy decides when a message is poison and where it is moved. The zero value is the default
// policy.
type Policy struct {
	// MaxAttempts is how many recorded failures make a message poison. For a message without an
	// envelope every delivery counts, also one whose worker died. Defaults to 5. Negative is an
	// error.
	MaxAttempts int

	// MaxLost is how many handlers in a row may be recorded to start without a result, because
	// the worker died or lost its lease, before the message is poison: the message itself may
	// kill the worker. The first start after each settlement is not recorded, so a job that kills its
	// worker runs MaxLost + 1 times. Deliveries that never reached a handler do not count, nor
	// do, in the same process, up to 20 handlers that returned without their lease. It applies
	// to messages with an envelope; if the text has no room for the record every delivery
	// counts, even those to workers that could not read it. Producers of Millrace leave room.
	// Defaults to 5. Negative is an error.
	MaxLost int

	// Queue is where poison is moved. It is created when missing. Defaults to the sibling of
	// the queue with [Suffix]. A queue that is itself a poison queue, or whose name is too long
	// for the suffix, has no default: see Keep.
	Queue queue.Queue

	// Bare copies only the body, as consumers of other frameworks expect it: no [Record], and no
	// envelope either. The body is as it is, or in Base64 if XML cannot carry it. A message that
	// has no envelope is copied unchanged, and so is one whose body is stored elsewhere. Why it is
	// poison, where it came from, and the kind of its job are lost. Defaults to false.
	Bare bool

	// Keep leaves a poison message in its queue, never handled, and hidden again each time it
	// becomes visible: for a minute at first, then for twice as long each time, up to a day, and
	// for at most half of its remaining life. Defaults to false, except where Queue has no
	// default.
	Keep bool
}

// Reason is why a message is poison, in one word for metrics and filters.
type Reason = poisonrecord.Reason

// The reasons.
const (
	ReasonAttempts    Reason = "attempts"    // the handler failed too often
	ReasonLost        Reason = "lost"        // too many handlers in a row started without a result
	ReasonUndecodable Reason = "undecodable" // the text cannot be decoded
	ReasonRejected    Reason = "rejected"    // the handler asked for it
	ReasonExpiring    Reason = "expiring"    // it expires before another attempt could be made

	// ReasonOutlived means that handlers of the message kept returning after they had lost its
	// lease, so that none of their results could count. The job is likely sound, and the
	// visibility too short for how long it takes or for how slow the service is. A worker says
	// so of what it saw itself; otherwise such a message is poison as [ReasonLost].
	ReasonOutlived Reason = "outlived"

	// ReasonBlobGone means that the message carries only a reference to its body, and the body
	// is not where the reference says. To redrive the message helps once the body is restored.
	ReasonBlobGone Reason = "blobgone"
)

// Record is what a poison queue holds for one message: what the message was, why it is poison,
// and what a person needs to understand that. The zero value is not a valid record.
type Record struct {
	Reason       Reason   `json:"reason"`
	Error        string   `json:"error,omitempty"`       // the last error, possibly shortened
	Fingerprint  string   `json:"fingerprint,omitempty"` // the error without its numbers and ids: equal for failures of one kind
	Stack        string   `json:"stack,omitempty"`       // of a handler that panicked: functions and lines, innermost first
	Account      string   `json:"account"`
	Queue        string   `json:"queue"`          // where it came from, and where a redrive returns it
	ID           queue.ID `json:"id"`             // its id in that queue
	Job          string   `json:"job,omitempty"`  // the job id from the envelope; empty when none
	Host         string   `json:"host,omitempty"` // the machine of the worker that gave it up
	DequeueCount int64    `json:"dequeueCount"`
	Attempts     int      `json:"attempts"`       // failures recorded; without an envelope, deliveries
	Lost         int64    `json:"lost,omitempty"` // deliveries of which nothing was recorded

	Inserted  time.Time  `json:"inserted"`           // by the service's clock
	Expires   *time.Time `json:"expires,omitempty"`  // by the service's clock; nil when never
	FirstSeen time.Time  `json:"firstSeen,omitzero"` // when the job was sent: by its producer's clock, else Inserted
	LastSeen  time.Time  `json:"lastSeen,omitzero"`  // its last delivery, by the worker's clock
	Poisoned  time.Time  `json:"poisoned"`           // by the worker's clock

	Text string `json:"text"` // the message text, exactly
}

// Body returns the body of the message that the record holds, decoded from an envelope or Base64
// if it is in one. The body of a group has all its items, in the form of docs/protocol.md. A text
// that cannot be read is returned as it is, with the error; so is one whose body is stored
// elsewhere, where a listener with claims finds it after a redrive.
func (r Record) Body() ([]byte, error) { return poisonrecord.Body(r.Text) }

package beacon

import (
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// Report is what one listener of one instance says of itself.
type Report struct {
	// Instance identifies the instance among all.
	Instance string `json:"instance"`

	// Queue is where it takes jobs from.
	Queue queue.Name `json:"queue"`

	// Sequence grows by one with each report, from 1.
	Sequence int64 `json:"sequence"`

	// At is when the report was made, by the clock of the instance.
	At time.Time `json:"at"`

	// Next is when the next one follows, counted from At.
	Next time.Duration `json:"next"`

	// Phase is the phase of the listener's life, such as "running".
	Phase string `json:"phase"`

	// Paused reports that the listener fetches nothing.
	Paused bool `json:"paused"`

	// Received is how many messages it has received since its start.
	Received int64 `json:"received"`

	// Ended is how many messages it has taken off the queue since its start: deleted or moved to the poison queue.
	Ended int64 `json:"ended"`

	// Delayed is how many messages it has given back that are not due yet.
	Delayed int64 `json:"delayed"`

	// Load is its load.
	Load scaling.Load `json:"load"`
}

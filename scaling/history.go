package scaling

import "time"

// Sample is what was measured of a pool at one time: instances of one program that take jobs from the same queues. A figure
// that could not be measured is unknown, never zero. It may be copied.
type Sample struct {
	// At is when it was measured.
	At time.Time `json:"at"`

	// Instances is how many instances there were, those included that were starting: what was last asked for, as the
	// platform has it.
	Instances int `json:"instances"`

	// Ready is how many of them report that they work.
	Ready Optional[int] `json:"ready"`

	// Depth is the approximate number of messages in the queues, hidden ones included: the sum of Visible, InWork
	// and Delayed.
	Depth Optional[int64] `json:"depth"`

	// Visible is how many of them wait for an instance.
	Visible Optional[int64] `json:"visible"`

	// InWork is how many of them instances hold.
	InWork Optional[int64] `json:"in_work"`

	// Delayed is how many of them are not due yet, such as retries.
	Delayed Optional[int64] `json:"delayed"`

	// HeadAge is how long the oldest visible message has waited; zero if there is none.
	HeadAge Optional[time.Duration] `json:"head_age"`

	// Arrival is how many messages a second have come since the last sample.
	Arrival Optional[float64] `json:"arrival"`

	// Service is how many messages a second were taken off the queues since the last sample: deleted or moved to the poison
	// queue.
	Service Optional[float64] `json:"service"`

	// Handling is how long a message occupies a slot, on average.
	Handling Optional[time.Duration] `json:"handling"`

	// Slots is how many handlers one instance runs at once, on average.
	Slots Optional[float64] `json:"slots"`

	// Running is how many handlers run in all instances.
	Running Optional[int] `json:"running"`
}

// History are samples of one pool, oldest first. The newest is the last one. The zero value is empty.
type History []Sample

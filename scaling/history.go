package scaling

import (
	"sort"
	"time"
)

// Sample is what was measured at one time of a pool: of instances of one program that take jobs from
// the same queues. A figure that could not be measured is unknown, never zero. One that is absurd,
// such as a negative or infinite rate, counts as unknown. Its JSON form leaves out what is unknown. It
// may be copied.
type Sample struct {
	// At is when it was measured.
	At time.Time `json:"at"`

	// Instances is how many instances there were, those included that were starting: what was last asked
	// for, as the platform has it.
	Instances int `json:"instances"`

	// Ready is how many of them report that they work.
	Ready Optional[int] `json:"ready,omitzero"`

	// Depth is the approximate number of messages in the queues, hidden ones included: the sum of
	// Visible, InWork and Delayed.
	Depth Optional[int64] `json:"depth,omitzero"`

	// Visible is how many of them wait for an instance.
	Visible Optional[int64] `json:"visible,omitzero"`

	// InWork is how many of them instances hold.
	InWork Optional[int64] `json:"in_work,omitzero"`

	// Delayed is how many of them are not due yet, such as retries.
	Delayed Optional[int64] `json:"delayed,omitzero"`

	// HeadAge is how long the oldest visible message has waited; zero if there is none.
	HeadAge Optional[time.Duration] `json:"head_age,omitzero"`

	// Arrival is how many messages a second have come since the last sample.
	Arrival Optional[float64] `json:"arrival,omitzero"`

	// Service is how many messages a second were taken off the queues since the last sample: deleted or
	// moved to the poison queue.
	Service Optional[float64] `json:"service,omitzero"`

	// Handling is how long a message occupies a slot, on average.
	Handling Optional[time.Duration] `json:"handling,omitzero"`

	// Slots is how many handlers one instance runs at once, on average.
	Slots Optional[float64] `json:"slots,omitzero"`

	// Running is how many handlers run in all instances.
	Running Optional[int] `json:"running,omitzero"`
}

// How long a history keeps samples.
const (
	keepAll     = time.Hour          // all of them
	keepMinutes = 8 * 24 * time.Hour // one for each minute
)

// History are samples of one pool, oldest first. The newest is the last one. The zero value is empty.
// [History.Add] keeps it in order and bounds it. It is not safe for concurrent use.
type History []Sample

// Add appends a sample. It changes the array of the history in place, so that copies of the slice
// change too.
//
// Samples that are not older than the new one are dropped: then the clock was set back. Samples that
// are older by more than an hour are merged to one for each minute, which has the averages of Arrival
// and Service, and otherwise the latest figures. Those older by more than 8 days are dropped. So with
// a sample every 10 s there are 11,800 of them, in about 3 MB. A clock that is set forward by days
// costs the history, and one that is set back what came after it; then no instance is removed until
// DownAfter has passed.
func (h *History) Add(s Sample) {
	s.At = s.At.Round(0) // without the monotonic time, which a stored history does not have either
	kept := *h
	for len(kept) > 0 && !kept[len(kept)-1].At.Before(s.At) {
		kept = kept[:len(kept)-1]
	}
	kept = kept.thinned(kept.search(s.At.Add(-keepAll)))
	if expired := kept.search(s.At.Add(-keepMinutes)); expired > len(kept)/8 {
		kept = append(kept[:0], kept[expired:]...) // in place, so that the array does not grow
	}
	*h = append(kept, s)
}

// search returns the index of the first sample that is not before a time.
func (h History) search(at time.Time) int {
	return sort.Search(len(h), func(i int) bool { return !h[i].At.Before(at) })
}

// thinned merges those of the first n samples that are of the same minute.
func (h History) thinned(n int) History {
	return h
}

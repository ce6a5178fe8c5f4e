// Package load has the figures of an instance that packages listener and scaling share.
package load

import (
	"encoding/json"
	"math"
	"time"
)

// Load is what one instance knows of its load. A rule for loops gets it, a listener's state has it,
// and an instance reports it. It may be copied. Its JSON form has the names in lower case, with
// underscores. The fields:
//
//   - Depth: the approximate number of messages in the queue, including those being handled.
//   - Loops: the number of loops running.
//   - Running: the number of handlers running.
//   - Settling: the number of settlements in progress.
//   - Slots: how many handlers may run at once. With shared slots, how many there are for all.
//   - BatchSize: how many messages one loop takes at most in one dequeue.
//   - Arrival: how many messages a second come to the queue, as far as this instance can tell: the
//     growth between its readings of the depth, and the messages that it took off the queue
//     meanwhile. Messages that others took off are missing. It is the mean since the youngest reading
//     that is 30 s older than the newest, or since the oldest of the last 5 min. A reading that fails
//     changes nothing. It is unknown until the depth was read twice in 5 min, a second apart. It is
//     unknown while the newest reading is more than a minute old, such as when the queue is empty or
//     no more loops may start, and while others take off more than comes.
//   - Intake: how many messages a second this instance has received in the last 30 s, or since its
//     start. Unknown in its first second.
//   - Service: how many messages a second this instance has taken off the queue in the same time:
//     deleted, or moved to the poison queue. Unknown in its first second.
//   - Handling: how long a handler took, on average of those that returned in the same time, or of
//     the latest ones if none did. Unknown until one has returned.
type Load struct {
	Depth     int64                   `json:"depth"`
	Loops     int                     `json:"loops"`
	Running   int                     `json:"running"`
	Settling  int                     `json:"settling"`
	Slots     int                     `json:"slots"`
	BatchSize int                     `json:"batch_size"`
	Arrival   Optional[float64]       `json:"arrival"`
	Intake    Optional[float64]       `json:"intake"`
	Service   Optional[float64]       `json:"service"`
	Handling  Optional[time.Duration] `json:"handling"`
}

// Optional is a figure that may be unknown, because nobody reports it or because reading it failed. Get
// returns the figure and whether it is known, Or returns the figure or another one if it is unknown.
// The zero value is unknown. It may be copied. Its JSON form is that of the figure, or null if it is
// unknown, infinite or not a number; a time.Duration has the form that its String method returns, such
// as "1.5s".
type Optional[T any] struct {
	value T
	known bool
}

// Known returns a figure that is known.
func Known[T any](value T) Optional[T] { return Optional[T]{value: value, known: true} }

// Get returns the figure, and whether it is known.
func (o Optional[T]) Get() (value T, known bool) { return o.value, o.known }

// IsKnown reports whether the figure is known.
func (o Optional[T]) IsKnown() bool { return o.known }

// Or returns the figure, or otherwise if it is unknown.
func (o Optional[T]) Or(otherwise T) T {
	if o.known {
		return o.value
	}
	return otherwise
}

// MarshalJSON returns the JSON form.
func (o Optional[T]) MarshalJSON() ([]byte, error) {
	if !o.known {
		return []byte("null"), nil
	}
	switch v := any(o.value).(type) {
	case time.Duration:
		return json.Marshal(v.String())
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) { // json.Marshal would fail, and with it a whole history
			return []byte("null"), nil
		}
	}
	return json.Marshal(o.value)
}

// UnmarshalJSON parses what [Optional.MarshalJSON] returns.
func (o *Optional[T]) UnmarshalJSON(text []byte) error {
	*o = Optional[T]{}
	if string(text) == "null" {
		return nil
	}
	if d, ok := any(&o.value).(*time.Duration); ok {
		var s string
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		var err error
		*d, err = time.ParseDuration(s)
		o.known = err == nil
		return err
	}
	err := json.Unmarshal(text, &o.value)
	o.known = err == nil
	return err
}

package scaling

import (
	"encoding/json"
	"math"
	"time"
)

// Optional is a figure that may be unknown, because nobody reports it or because reading it failed. The
// zero value is unknown. It may be copied. Its JSON form is that of the figure, or null if it is unknown,
// infinite or not a number; a time.Duration has the form that its String method returns, such as "1.5s".
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

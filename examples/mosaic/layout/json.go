package layout

import (
	"fmt"
	"strconv"
)

// MarshalJSON writes the percentage.
func (r Reuse) MarshalJSON() ([]byte, error) {
	return strconv.AppendInt(nil, int64(r.Percent()), 10), nil
}

// UnmarshalJSON reads a percentage. Whether it is possible is for [Options.Validate] to say.
func (r *Reuse) UnmarshalJSON(text []byte) error {
	percent, err := strconv.ParseInt(string(text), 10, 32)
	if err != nil {
		return fmt.Errorf("a reuse of %.20q is not a percentage", text)
	}
	*r = ReusePercent(int(percent))
	return nil
}

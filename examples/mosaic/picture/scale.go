package picture

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Scale says how many times as wide and high as its input a mosaic is, in hundredths. The zero value means 1.
type Scale int

// The smallest and the largest scale.
const (
	MinScale Scale = 1          // 0.01
	MaxScale Scale = 64 * unity // a pixel becomes the largest tile

	unity = 100
)

// errScale says what a scale looks like.
var errScale = errors.New("a scale is a number from 0.01 to 64 with at most two digits after the point")

// ParseScale parses a decimal number such as "2" or "0.75".
func ParseScale(text string) (Scale, error) {
	whole, fraction, point := strings.Cut(text, ".")
	if len(whole) < 1 || len(whole) > 2 || len(fraction) > 2 || point && fraction == "" {
		return 0, fmt.Errorf("scale %.20q: %w", text, errScale)
	}
	fraction += "00"[len(fraction):]
	n, err := strconv.ParseUint(whole+fraction, 10, 16)
	s := Scale(n)
	if err != nil || s < MinScale || s > MaxScale {
		return 0, fmt.Errorf("scale %.20q: %w", text, errScale)
	}
	return s, nil
}

// hundredths is the scale with the zero value replaced.
func (s Scale) hundredths() int {
	if s == 0 {
		return unity
	}
	return int(s)
}

// Check returns an error unless the scale is 0 or from [MinScale] to [MaxScale].
func (s Scale) Check() error {
	if s != 0 && (s < MinScale || s > MaxScale) {
		return fmt.Errorf("scale %v: %w", s, errScale)
	}
	return nil
}

// String writes the scale as [ParseScale] reads it, with as few digits as possible.
func (s Scale) String() string {
	n := s.hundredths()
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%02d", n/unity, n%unity), "0"), ".")
}

// MarshalJSON writes a number.
func (s Scale) MarshalJSON() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalJSON reads a number as [ParseScale] does.
func (s *Scale) UnmarshalJSON(text []byte) (err error) {
	*s, err = ParseScale(string(text))
	return err
}

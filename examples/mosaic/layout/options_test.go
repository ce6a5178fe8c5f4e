package layout

import (
	"strings"
	"testing"
)

func TestReusePercentAndBack(t *testing.T) {
	for percent := range 101 {
		r := ReusePercent(percent)
		if err := (&Options{Reuse: r}).Validate(); err != nil || r.Percent() != percent {
			t.Errorf("%d per cent: got %d, error %v; want the same percentage", percent, r.Percent(), err)
		}
	}
	if got := Reuse(0).Percent(); got != DefaultReuse.Percent() {
		t.Errorf("zero value: got %d per cent, want the default of %d", got, DefaultReuse.Percent())
	}
}

func TestOptionsOutOfBounds(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Reuse: ReusePercent(-1)}, "reuse"},
		{Options{Reuse: ReusePercent(101)}, "reuse of 101"},
		{Options{Tint: -1}, "tint of -1"},
		{Options{Tint: MaxTint + 1}, "tint of 41"},
	} {
		if err := c.o.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got error %v, want %q", c.o, err, c.want)
		}
	}
	for _, o := range []*Options{nil, {}, {Reuse: Once}, {Reuse: BestMatch, Tint: MaxTint}} {
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: got error %v, want none", o, err)
		}
	}
}

package layout

import (
	"strings"
	"testing"
)

func TestOptionsOutOfBounds(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Reuse: -1}, "reuse"},
		{Options{Reuse: 101}, "reuse of 101"},
		{Options{Tint: -1}, "tint of -1"},
		{Options{Tint: MaxTint + 1}, "tint of 41"},
	} {
		if err := c.o.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got error %v, want %q", c.o, err, c.want)
		}
	}
	for _, o := range []Options{{}, {Reuse: Once}, {Reuse: BestMatch, Tint: MaxTint}} {
		if err := o.Validate(); err != nil {
			t.Errorf("%+v: got error %v, want none", o, err)
		}
	}
}

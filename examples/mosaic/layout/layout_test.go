package layout

import (
	"encoding/json"
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

func TestReuseTravelsAsAPercentage(t *testing.T) {
	for r, want := range map[Reuse]string{0: "80", Once: "0", 1: "1", BestMatch: "100"} {
		text, err := json.Marshal(r)
		if err != nil || string(text) != want {
			t.Errorf("encoded Reuse(%d): got %s, %v; want %s", r, text, err, want)
		}
		var got Reuse
		if err := json.Unmarshal(text, &got); err != nil || got.Percent() != r.Percent() {
			t.Errorf("decoded %s: got %d, %v; want %d", text, got, err, r)
		}
	}
	for _, text := range []string{"-1", "101"} {
		var o Options
		if err := json.Unmarshal([]byte(text), &o.Reuse); err != nil || o.Validate() == nil {
			t.Errorf("decoded %s: got %d, %v; want one that Validate refuses", text, o.Reuse, err)
		}
	}
	for _, text := range []string{`"5"`, "0.5", "true", "99999999999"} {
		var r Reuse
		if err := json.Unmarshal([]byte(text), &r); err == nil {
			t.Errorf("decoded %s: got %d, want an error", text, r)
		}
	}
}

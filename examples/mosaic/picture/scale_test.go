package picture

import (
	"encoding/json"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

func TestEveryScaleIsReadAsItIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Scale(rapid.IntRange(int(MinScale), int(MaxScale)).Draw(t, "scale"))
		if got, err := ParseScale(s.String()); err != nil || got != s {
			t.Fatalf("ParseScale(%q): got %v, %v; want %d hundredths", s, int(got), err, int(s))
		}
		if f, err := strconv.ParseFloat(s.String(), 64); err != nil || int(f*unity+0.5) != int(s) || s.Check() != nil {
			t.Fatalf("%d hundredths as a number: got %v, %v", int(s), f, err)
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var got Scale
		if err := json.Unmarshal(text, &got); err != nil || got != s {
			t.Fatalf("decoded %s: got %v, %v; want %v", text, got, err, s)
		}
	})
	for text, want := range map[string]Scale{"1": 100, "1.0": 100, "0.5": 50, "0.05": 5, "00.5": 50, "2.25": 225, "64": 6400, "64.00": 6400} {
		if got, err := ParseScale(text); err != nil || got != want {
			t.Errorf("ParseScale(%q): got %d hundredths, %v; want %d", text, int(got), err, int(want))
		}
	}
	for s, want := range map[Scale]string{0: "1", 100: "1", 1: "0.01", 110: "1.1", 6400: "64", 1000: "10"} {
		if got := s.String(); got != want {
			t.Errorf("%d hundredths: got %q, want %q", int(s), got, want)
		}
	}
}

func TestNumbersThatAreNoScalesAreRefused(t *testing.T) {
	for _, text := range []string{"", "0", "0.0", "0.001", "64.01", "65", "-1", "+1", "1.", ".5", "1.234", "1,5", "1e1", "1_0", "2x", " 1", "NaN", "1.+1", "1.2.3", "100"} {
		if got, err := ParseScale(text); err == nil {
			t.Errorf("ParseScale(%q): got %v, want an error", text, got)
		}
	}
	for _, s := range []Scale{-1, MaxScale + 1} {
		if s.Check() == nil {
			t.Errorf("Check of %d hundredths: got no error, want one", int(s))
		}
	}
}

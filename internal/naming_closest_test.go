package internal_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/naming"
)

func TestTheClosestWordIsHinted(t *testing.T) {
	known := []string{"v", "queues", "beacons", "policy", "max", "min", "down_after", "messages-per-day", "message-rate"}
	for wrong, want := range map[string]string{
		"queue": "queues", "Queues": "queues", "qeueus": "queues", "beacon": "beacons", "polcy": "policy", "mxa": "max", "messages": "messages-per-day", "message": "", "me": "", "5": "", "nix": "", "downafter": "down_after", "down-after": "down_after",
		"": "", "frobnicate": "", strings.Repeat("queues", 100): "",
	} {
		got := naming.Hint(wrong, known)
		if want != "" {
			want = ", did you mean " + want + "?"
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", wrong, got, want)
		}
	}
	if got := naming.Hint("x", nil); got != "" {
		t.Errorf("no known words: got %q, want nothing", got)
	}
}

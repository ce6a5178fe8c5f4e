package millrace_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/listener"
)

// By default five attempts take nearly six minutes.
func TestDocumentsAreRightAboutRetries(t *testing.T) {
	page, err := os.ReadFile("docs/worker.md")
	if err != nil {
		t.Fatal(err)
	}
	const claim = "the waits between the five attempts are about 1 s, 16 s, 81 s, and 4 min, so a job that\n" +
		"always fails is poison after nearly six minutes"
	if !strings.Contains(string(page), claim) || poisonrecord.DefaultMaxAttempts != 5 {
		t.Errorf("docs/worker.md lacks %q, or DefaultMaxAttempts is %d, not 5", claim, poisonrecord.DefaultMaxAttempts)
	}
	var total time.Duration
	for attempt, about := range []time.Duration{time.Second, 16 * time.Second, 81 * time.Second, 256 * time.Second} {
		delay := listener.RetryCurve(attempt + 1)
		if delay < about*9/10 || delay > about*11/10 {
			t.Errorf("delay after attempt %d: got %v, want about %v", attempt+1, delay, about)
		}
		total += delay
	}
	if total < 5*time.Minute || total > 7*time.Minute {
		t.Errorf("time until a job is poison: got %v, want 5 to 7 min", total)
	}
}

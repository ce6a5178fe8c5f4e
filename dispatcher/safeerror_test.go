package dispatcher

import (
	"testing"
	"time"
)

// badError has methods that panic.
type badError struct{}

func (badError) Error() string { panic("no text") }

func TestAnErrorWhoseMethodsPanicKeepsTheResultItAsksFor(t *testing.T) {
	for name, bad := range map[string]error{
		"retry":  Retry(time.Minute, badError{}),
		"poison": Poison(badError{}),
	} {
		want := explicitResult(bad)
		got := explicitResult(safeError("handler", bad))
		if got == nil || got.outcome != want.outcome || got.delay != want.delay {
			t.Errorf("%s: got %+v, want outcome %v and delay %v", name, got, want.outcome, want.delay)
		}
	}
}

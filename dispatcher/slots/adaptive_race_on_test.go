//go:build race

package slots

import "testing"

// notWithRaceDetector skips a long simulation, which would take minutes. The other tests run the same code concurrently.
func notWithRaceDetector(t *testing.T) { t.Skip("too long with the race detector") }

package slots_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/suitetest"
)

func TestMain(m *testing.M) {
	suitetest.OneProcessor()
	goleak.VerifyTestMain(m)
}

// skipLong skips a simulation of many jobs with -short, and with the race detector, for which the short ones run the
// same code.
func skipLong(t *testing.T) {
	t.Helper()
	if testing.Short() || raced {
		t.Skip("many jobs")
	}
}

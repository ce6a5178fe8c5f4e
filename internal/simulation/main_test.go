package simulation

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/suitetest"
)

func TestMain(m *testing.M) {
	suitetest.OneProcessor()
	debug.SetGCPercent(400) // worlds are small and many
	goleak.VerifyTestMain(m)
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

package simulation

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // worlds are small and many
	goleak.VerifyTestMain(m)
}

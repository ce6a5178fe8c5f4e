package emulator

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/azuritetest"
)

func TestMain(m *testing.M) {
	if to := os.Getenv(idleClientsVariable); to != "" {
		os.Exit(runIdleClients(to))
	}
	// Parallel tests wait for real seconds, so run more of them than there are cores.
	if err := flag.Set("test.parallel", "32"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(stopping{m})
}

// stopping runs the tests and then stops the Azurite that they may have started.
type stopping struct{ m *testing.M }

func (s stopping) Run() int {
	code := s.m.Run()
	azuritetest.Stop()
	return code
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

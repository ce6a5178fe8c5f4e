package emulator

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/azuritetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(stopping{m})
}

// stopping is tests that end the Azurite they may have started.
type stopping struct{ m *testing.M }

func (s stopping) Run() int {
	code := s.m.Run()
	azuritetest.Stop()
	return code
}

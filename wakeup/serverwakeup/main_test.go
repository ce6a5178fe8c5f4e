package serverwakeup_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/azuritetest"
)

func TestMain(m *testing.M) {
	if location := os.Getenv(workerVariable); location != "" {
		runWorker(location)
		return
	}
	if address := os.Getenv(serverVariable); address != "" {
		runServer(address, os.Getenv(dataVariable))
		return
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

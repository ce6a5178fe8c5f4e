package serverwakeup_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
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
	goleak.VerifyTestMain(m)
}

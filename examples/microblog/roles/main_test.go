package roles

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// These tell a process that it is a worker, not a test.
const (
	queueVariable = "MICROBLOG_QUEUE" // the connection string of the queue
	fileVariable  = "MICROBLOG_FILE"  // the file with the tables
	dieVariable   = "MICROBLOG_DIE"   // where it stands still and waits to be killed: "saved", a page, or "group", of a page
)

func TestMain(m *testing.M) {
	if location := os.Getenv(queueVariable); location != "" {
		workInProcess(location, os.Getenv(fileVariable), os.Getenv(dieVariable))
		return
	}
	goleak.VerifyTestMain(m)
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

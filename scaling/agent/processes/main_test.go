package processes

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// tasks are what this test binary does as another process, by the value of taskVariable.
var tasks = map[string]func(){}

const taskVariable = "MILLRACE_PROCESSES_TASK"

func TestMain(m *testing.M) {
	if task := tasks[os.Getenv(taskVariable)]; task != nil {
		task()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

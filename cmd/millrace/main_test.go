package main

import (
	"context"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// programVariable makes the test binary the command.
const programVariable = "MILLRACE_TEST_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		os.Exit(command(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/internal/azuritetest"
)

// asMosaic makes this test binary the program itself, for tests that need a process: of signals, kills
// and the exit status.
const asMosaic = "MOSAIC_TEST_MAIN"

// dataHome is the user's data directory in tests.
var dataHome string

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(asServer) != "":
		serveQueues(os.Getenv(asServer), os.Getenv(serverAddress))
	case os.Getenv(peakVariable) != "":
		picture.LimitMemory()
		status := command(context.Background(), os.Args[1:], os.Stdout, os.Stderr)
		printPeak()
		os.Exit(status)
	case os.Getenv(asMosaic) != "":
		main()
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	var err error
	if dataHome, err = os.MkdirTemp("", "mosaic-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dataHome) }()
	// The processors of a mosaic serve in this process are the program too, and no second run of all tests.
	for name, value := range map[string]string{asMosaic: "1", "TMPDIR": dataHome, "XDG_DATA_HOME": dataHome, account.Variable: ""} {
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	// The parallel tests wait for processes, queues and leases more than they compute.
	flag.Parse()
	if n := flag.Lookup("test.parallel"); n.Value.String() == n.DefValue && runtime.GOMAXPROCS(0) < 5 {
		if err := flag.Set(n.Name, "5"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	azuritetest.Stop()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	return code
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

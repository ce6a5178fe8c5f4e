package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/examples/internal/account"
)

// asBilling makes this test binary the program itself, for tests that need a process: of signals and kills.
const asBilling = "BILLING_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asBilling) != "" {
		main()
	}
	flag.Parse()
	// The parallel tests wait for processes and leases more than they compute.
	if n := flag.Lookup("test.parallel"); n.Value.String() == n.DefValue && runtime.GOMAXPROCS(0) < 5 {
		if err := flag.Set(n.Name, "5"); err != nil {
			panic(err)
		}
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	home, err := os.MkdirTemp("", "billing-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(home) }()
	for name, value := range map[string]string{"XDG_DATA_HOME": home, account.Variable: ""} {
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
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

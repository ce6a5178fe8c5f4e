package main

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/internal/azuritetest"
)

// asMicroblog makes this test binary the program itself, for tests of signals and kills.
const asMicroblog = "MICROBLOG_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMicroblog) != "" {
		main()
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	home, err := os.MkdirTemp("", "microblog-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(home) }()
	// Processes that tests start, those of the demonstration too, are the program.
	for name, value := range map[string]string{"XDG_DATA_HOME": home, account.Variable: "", asMicroblog: "1"} {
		if err := os.Setenv(name, value); err != nil {
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

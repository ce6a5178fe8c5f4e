package main

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/azuritetest"
)

// asMosaic makes this test binary the program itself, for tests that need a process: of signals, kills
// and the exit status.
const asMosaic = "MOSAIC_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMosaic) != "" {
		main()
	}
	code := m.Run()
	azuritetest.Stop()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

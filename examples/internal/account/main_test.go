package account

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/azuritetest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	azuritetest.Stop()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

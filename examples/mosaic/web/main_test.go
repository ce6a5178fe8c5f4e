package web

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(asChild); kind != "" {
		child(kind)
		return
	}
	goleak.VerifyTestMain(m)
}

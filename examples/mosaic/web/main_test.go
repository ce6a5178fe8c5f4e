package web

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(asChild); kind != "" {
		child(kind)
		return
	}
	_ = flag.Set("test.parallel", "16") // they wait more than they compute
	goleak.VerifyTestMain(m)
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

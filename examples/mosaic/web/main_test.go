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

package main

import (
	"context"
	"os"
	"runtime/debug"
)

// memoryLimit is how much memory a process takes before it collects garbage more often: the work in hand takes less,
// however much is waiting.
const memoryLimit = 32 << 20

func main() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	os.Exit(command(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

package millracetest_test

import (
	"context"
	"fmt"
	"io"
	"testing"
)

// tb takes the place of *testing.T in the examples. It prints the failures.
type tb struct{ testing.TB }

func (tb) Helper()                  {}
func (tb) Context() context.Context { return context.Background() }
func (tb) Output() io.Writer        { return io.Discard }

// Cleanup runs f at once: each example has one queue, and all share this value.
func (tb) Cleanup(f func()) { f() }

func (tb) Fatalf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

package millracetest_test

import (
	"context"
	"fmt"
	"io"
	"testing"
)

// tb is to the examples what *testing.T is to a test, where all of this belongs: what
// would fail the test is printed.
type tb struct{ testing.TB }

func (tb) Helper()                  {}
func (tb) Context() context.Context { return context.Background() }
func (tb) Output() io.Writer        { return io.Discard }

// Cleanup runs at once: each example has one queue, and they share this t.
func (tb) Cleanup(f func()) { f() }

func (tb) Fatalf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

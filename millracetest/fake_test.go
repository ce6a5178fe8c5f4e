package millracetest_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
)

// fake is a test that is expected to fail.
type fake struct {
	testing.TB // of the test that expects it; for what is not overridden
	log        strings.Builder
	fatal      string
}

func (f *fake) Helper()                  {}
func (f *fake) Context() context.Context { return f.TB.Context() }
func (f *fake) Output() io.Writer        { return &f.log }

func (f *fake) Fatalf(format string, args ...any) {
	f.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failureOf runs code that should end a test and returns the failure, or "" if it did not.
func failureOf(t *testing.T, f func(t testing.TB)) string {
	t.Helper()
	test := &fake{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(test)
	}()
	<-done
	return test.fatal
}

// requireParts fails the test unless the text contains all these parts.
func requireParts(t *testing.T, got string, parts ...string) {
	t.Helper()
	if got == "" {
		t.Errorf("got no failure, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(got, part) {
			t.Errorf("got %q, want %q in it", got, part)
		}
	}
}

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

// failing runs code that should end a test and returns the failure, or "" if it did not.
func failing(t *testing.T, what func(t testing.TB)) string {
	t.Helper()
	f := &fake{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		what(f)
	}()
	<-done
	return f.fatal
}

// says fails the test unless the failure contains all these parts.
func says(t *testing.T, got string, parts ...string) {
	t.Helper()
	if got == "" {
		t.Errorf("the test was not ended, want it to be with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(got, part) {
			t.Errorf("the test was ended with %q, which does not say %q", got, part)
		}
	}
}

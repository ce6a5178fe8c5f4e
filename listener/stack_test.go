package listener

import (
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/hook"
)

// A logged stack begins where the first panic was, also if a deferred call panicked again, has
// no frames of what called the function, and is short.
func TestALoggedStackBeginsAtTheFirstPanic(t *testing.T) {
	for name, c := range map[string]struct {
		call func()
		want []string // the functions, innermost first
	}{
		"a panic":             {panicsHere, []string{"listener.panicsHere"}},
		"a nil pointer":       {func() { nilHere(nil) }, []string{"listener.nilHere"}},
		"panicked again":      {panicsAgain, []string{"listener.panicsHere", "listener.panicsAgain"}},
		"of a deep recursion": {func() { recurses(100) }, slices.Repeat([]string{"listener.recurses"}, maxFrames)},
	} {
		failure := hook.Run(c.call)
		var got []string
		for _, line := range frames(failure.Callers) {
			function, place, _ := strings.Cut(line, " ")
			if !strings.HasPrefix(place, "stack_test.go:") {
				t.Errorf("%s: got the frame %q", name, line)
			}
			got = append(got, function)
		}
		if len(got) < len(c.want) || !slices.Equal(got[:len(c.want)], c.want) || len(got) > maxFrames {
			t.Errorf("%s: got the frames %q, want %q", name, got, c.want)
		}
	}
	if got := frames(nil); len(got) != 0 {
		t.Errorf("got %q for a panic without callers", got)
	}
}

func panicsHere() { panic("here") }

func nilHere(p *int) { *p = 1 }

func panicsAgain() {
	defer func() { panic("again") }()
	panicsHere()
}

func recurses(n int) {
	if n == 0 {
		panic("deep")
	}
	recurses(n - 1)
}

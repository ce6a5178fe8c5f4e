package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
)

// Say prints for a person. It ignores errors: the work matters more than the output.
func Say(w io.Writer, format string, args ...any) {
	_, _ = io.WriteString(w, Escaped(fmt.Sprintf(format, args...)))
}

// OneLine returns the text of an error on one line; joined errors have several.
func OneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// Grouped formats a number with commas between thousands.
func Grouped(n int64) string { return GroupedText(strconv.FormatInt(n, 10)) }

// GroupedText puts commas between the thousands of a decimal number, such as 1234.5.
func GroupedText(number string) string {
	digits, negative := strings.CutPrefix(number, "-")
	whole, fraction, point := strings.Cut(digits, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if point {
		whole += "." + fraction
	}
	if negative {
		return "-" + whole
	}
	return whole
}

// Plural returns a number with the name of the things counted, such as "1 reply", "2 replies".
func Plural(n int, what string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(what, "y") && !strings.HasSuffix(what, "ay"):
		what = strings.TrimSuffix(what, "y") + "ies"
	case strings.HasSuffix(what, "ch"):
		what += "es"
	default:
		what += "s"
	}
	return Grouped(int64(n)) + " " + what
}

// Show prints for a person who waits: steps and results on stdout, and the lines of a log on stderr, so that stderr has
// only errors. It is safe for concurrent use.
type Show struct {
	Stdout io.Writer // for results; nothing else may print then
	stderr io.Writer
	mu     sync.Mutex
}

// NewShow returns a Show on these outputs.
func NewShow(stdout, stderr io.Writer) *Show { return &Show{Stdout: stdout, stderr: stderr} }

// Say prints the next step.
func (s *Show) Say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	Say(s.Stdout, format+"\n", args...)
}

// Tenths returns a function that says how far the work is, such as "3 of 20 slices are finished", after each tenth of it.
func (s *Show) Tenths(what string) func(done, all int) {
	tenths := 0
	return func(done, all int) {
		if now := done * 10 / max(all, 1); now > tenths {
			tenths = now
			s.Say("%d of %d %s", done, all, what)
		}
	}
}

// Write prints lines of a log.
func (s *Show) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stderr.Write(line)
}

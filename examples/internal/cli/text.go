package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
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

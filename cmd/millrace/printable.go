package main

import (
	"fmt"
	"strings"
	"unicode"
)

// printable is a text that others chose, fit for a terminal: what controls one is shown
// and does nothing. Line feeds and tabs stay.
func escapeControls(text string) string {
	if !strings.ContainsFunc(text, isControl) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !isControl(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// unfit reports whether a character does something to a terminal other than to appear.
func isControl(r rune) bool {
	switch r {
	case '\n', '\t', '\u200c', '\u200d': // the last two shape the letters and signs beside them
		return false
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
}

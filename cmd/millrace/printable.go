package main

import (
	"fmt"
	"strings"
	"unicode"
)

// escapeControls escapes control characters of untrusted text for a terminal, except line feeds
// and tabs.
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

// onOneLine escapes untrusted text and puts it on one line.
func onOneLine(text string) string {
	return strings.Join(strings.Fields(escapeControls(text)), " ")
}

// isControl reports whether a character affects a terminal other than by being shown.
func isControl(r rune) bool {
	switch r {
	case '\n', '\t', '\u200c', '\u200d': // the last two shape the letters and signs beside them
		return false
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
}

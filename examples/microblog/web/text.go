package web

import (
	"strconv"
	"strings"
	"time"
	"unicode"
)

// blank are characters that are letters or symbols to Unicode, and show nothing.
const blank = "\u115f\u1160\u2800\u3164\uffa0"

// visible returns a text as it is shown where it must be seen, such as in a link. One that shows nothing is quoted.
func visible(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool {
		return unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) && !strings.ContainsRune(blank, r)
	}) {
		return text
	}
	return strconv.QuoteToASCII(text)
}

// maxTitle is how many characters of a text the title of a page has.
const maxTitle = 60

// plain returns a text for the title of a page, where nothing isolates it: on one line, without characters that control
// the direction of the text.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.In(r, unicode.Cc, unicode.Cf):
			return -1
		}
		return r
	}, visible(text))
	text = strings.Join(strings.Fields(text), " ")
	if letters := []rune(text); len(letters) > maxTitle {
		return string(letters[:maxTitle-1]) + "…"
	}
	return text
}

// when formats a time for people.
func when(at time.Time) string { return at.UTC().Format("2 January 2006, 15:04 UTC") }

// stamp formats a time for programs.
func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

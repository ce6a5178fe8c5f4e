package queuexml

import "unicode/utf8"

// AppendText appends s as character data. It escapes only what must be escaped: &, < and >, and
// the carriage return, which a parser would turn into a line feed (XML 1.0, section 2.11).
func AppendText(dst []byte, s string) []byte {
	return appendEscaped(dst, s, false)
}

// appendAttribute appends s as an attribute value in double quotes, in which all white space but
// the space must be escaped too (section 3.3.3).
func appendAttribute(dst []byte, s string) []byte {
	return appendEscaped(dst, s, true)
}

// unescaped are the bytes that need no escaping in character data and attributes. One look-up for
// nearly every byte halved the cost of responding to a dequeue.
var unescaped = func() (table [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		table[c] = c != '&' && c != '<' && c != '>' && c != '"'
	}
	return table
}()

func appendEscaped(dst []byte, s string, attribute bool) []byte {
	start := 0 // everything before it is in dst
	for i := 0; i < len(s); {
		c := s[i]
		if unescaped[c] {
			i++
			continue
		}
		var escaped string
		width := 1
		switch {
		case c == '&':
			escaped = "&amp;"
		case c == '<':
			escaped = "&lt;"
		case c == '>':
			escaped = "&gt;"
		case c == '\r':
			escaped = "&#xD;"
		case c == '"' && attribute:
			escaped = "&#34;"
		case c == '\n' && attribute:
			escaped = "&#xA;"
		case c == '\t' && attribute:
			escaped = "&#x9;"
		case c == '"', c == '\n', c == '\t':
			i++
			continue
		default:
			var r rune
			r, width = utf8.DecodeRuneInString(s[i:])
			if isChar(r) && (r != utf8.RuneError || width > 1) {
				i += width
				continue
			}
			escaped = "\uFFFD"
		}
		dst = append(dst, s[start:i]...)
		dst = append(dst, escaped...)
		i += width
		start = i
	}
	return append(dst, s[start:]...)
}

// isChar is the production Char of XML 1.0, section 2.2.
func isChar(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' ||
		0x20 <= r && r <= 0xD7FF || 0xE000 <= r && r <= 0xFFFD || 0x10000 <= r && r <= 0x10FFFF
}

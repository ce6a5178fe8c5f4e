// Package httpsyntax has the parts of HTTP's syntax (RFC 9110, section 5) that our server loop
// and our client transport share: tokens, names and values of header fields, hosts. It follows
// net/http. Everything is safe for concurrent use, and allocates nothing for usual headers.
package httpsyntax

import (
	"net/textproto"
	"strings"
)

// Kinds of characters in a token.
const (
	capital byte = iota + 1
	small
	other
)

// kinds is the kind of each character of a token, and 0 for all others. It never changes.
var kinds = func() (table [256]byte) {
	for b := '!'; b <= '~'; b++ {
		switch {
		case 'A' <= b && b <= 'Z':
			table[b] = capital
		case 'a' <= b && b <= 'z':
			table[b] = small
		case !strings.ContainsRune(`"(),/:;<=>?@[\]{}`, b):
			table[b] = other
		}
	}
	return table
}()

// IsToken reports whether s is a token, such as a method or the name of a header.
func IsToken(s string) bool {
	for i := range len(s) {
		if kinds[s[i]] == 0 {
			return false
		}
	}
	return s != ""
}

// CutName cuts a header line after the colon and returns the name in its canonical form. If the
// line does not begin with a token and a colon, ok is false. The name is a substring of the
// line if it is canonical there.
func CutName(line string) (name, rest string, ok bool) {
	end, canonical := 0, true
	upper := true // the canonical form has an upper-case letter next
	for ; end < len(line) && line[end] != ':'; end++ {
		b := line[end]
		kind := kinds[b]
		if kind == 0 {
			return "", "", false
		}
		canonical = canonical && (kind == other || (kind == capital) == upper)
		upper = b == '-'
	}
	if end == 0 || end == len(line) {
		return "", "", false
	}
	name = line[:end]
	if !canonical {
		name = canonicalName(name)
	}
	return name, line[end+1:], true
}

// canonicalName is [textproto.CanonicalMIMEHeaderKey] for a name that is a token, without an
// allocation for common headers.
func canonicalName(name string) string {
	var lower [40]byte
	if len(name) > len(lower) {
		return textproto.CanonicalMIMEHeaderKey(name)
	}
	for i := range len(name) {
		lower[i] = name[i]
		if kinds[name[i]] == capital {
			lower[i] += 'a' - 'A'
		}
	}
	if known, ok := commonHeaders[string(lower[:len(name)])]; ok {
		return known
	}
	return textproto.CanonicalMIMEHeaderKey(name)
}

// commonHeaders are header names that clients of the queue service and the service itself send,
// by their lower-case forms. It never changes.
var commonHeaders = func() map[string]string {
	table := make(map[string]string)
	for _, name := range []string{
		"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Access-Control-Request-Headers",
		"Access-Control-Request-Method", "Authorization", "Cache-Control", "Connection", "Content-Encoding",
		"Content-Language", "Content-Length", "Content-Md5", "Content-Type", "Cookie", "Date", "Host",
		"If-Match", "If-Modified-Since", "If-None-Match", "If-Unmodified-Since", "Keep-Alive", "Origin", "Range",
		"Referer", "Request-Id", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Server", "Traceparent",
		"Tracestate", "Transfer-Encoding", "User-Agent", "X-Ms-Approximate-Messages-Count", "X-Ms-Client-Request-Id",
		"X-Ms-Date", "X-Ms-Error-Code", "X-Ms-Popreceipt", "X-Ms-Request-Id", "X-Ms-Return-Client-Request-Id",
		"X-Ms-Time-Next-Visible", "X-Ms-Version",
	} {
		table[strings.ToLower(name)] = name
	}
	return table
}()

// IsValue reports whether s can be the value of a header: it has no control characters but tabs.
func IsValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7F {
			return false
		}
	}
	return true
}

// Trim removes surrounding spaces and tabs, which are no part of a header's value.
func Trim(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// IsPlainHost reports whether a host, with or without a port, consists of letters, digits, dots,
// dashes, underscores, and the characters of addresses. Other hosts are valid too, but need
// decoding or conversion.
func IsPlainHost(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '-', c == '_', c == ':', c == '[', c == ']':
		default:
			return false
		}
	}
	return s != ""
}

package plainhttp

import (
	"net/textproto"
	"strings"
)

// Kinds of characters in a header name.
const (
	capital byte = iota + 1
	small
	other
)

// tokens is the kind of each character of a token (RFC 9110, section 5.6.2), and 0 for all
// others.
var tokens = func() (table [256]byte) {
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

// canonicalName is [textproto.CanonicalMIMEHeaderKey] for a name that is a token, without an
// allocation for common headers.
func canonicalName(name string) string {
	var folded [40]byte
	if len(name) > len(folded) {
		return textproto.CanonicalMIMEHeaderKey(name)
	}
	for i := range len(name) {
		folded[i] = name[i]
		if tokens[name[i]] == capital {
			folded[i] += 'a' - 'A'
		}
	}
	if known, ok := commonHeaders[string(folded[:len(name)])]; ok {
		return known
	}
	return textproto.CanonicalMIMEHeaderKey(name)
}

// commonHeaders are common header names by their lower-case forms. It never changes.
var commonHeaders = func() map[string]string {
	table := make(map[string]string)
	for _, name := range []string{
		"Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "Access-Control-Request-Headers",
		"Access-Control-Request-Method", "Authorization", "Cache-Control", "Connection", "Content-Encoding",
		"Content-Language", "Content-Length", "Content-Md5", "Content-Type", "Cookie", "Date", "Host",
		"If-Match", "If-Modified-Since", "If-None-Match", "If-Unmodified-Since", "Keep-Alive", "Origin", "Range",
		"Referer", "Request-Id", "Sec-Fetch-Dest", "Sec-Fetch-Mode", "Sec-Fetch-Site", "Traceparent", "Tracestate",
		"User-Agent", "X-Ms-Client-Request-Id", "X-Ms-Date", "X-Ms-Return-Client-Request-Id", "X-Ms-Version",
	} {
		table[strings.ToLower(name)] = name
	}
	return table
}()

package httpsyntax

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

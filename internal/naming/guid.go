// Package naming handles names: GUIDs, the common form of error texts, and the closest known word to a wrong one.
package naming

import "encoding/hex"

// size is the length of the text: 32 digits in groups of 8, 4, 4, 4 and 12.
const size = 36

// FormatGUID returns 16 bytes as the text of a GUID, in lower case. The queue service uses GUIDs for ids of messages and
// requests.
func FormatGUID(b [16]byte) string {
	var s [size]byte
	hex.Encode(s[0:8], b[0:4])
	hex.Encode(s[9:13], b[4:6])
	hex.Encode(s[14:18], b[6:8])
	hex.Encode(s[19:23], b[8:10])
	hex.Encode(s[24:36], b[10:16])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}

// ParseGUID is the inverse of [FormatGUID]. It takes no other form, so that a GUID has one text.
func ParseGUID(s string) (b [16]byte, ok bool) {
	if len(s) != size || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return b, false
	}
	var digits [32]byte
	copy(digits[0:8], s[0:8])
	copy(digits[8:12], s[9:13])
	copy(digits[12:16], s[14:18])
	copy(digits[16:20], s[19:23])
	copy(digits[20:32], s[24:36])
	for _, c := range digits {
		if 'A' <= c && c <= 'F' { // hex.Decode takes these too
			return b, false
		}
	}
	_, err := hex.Decode(b[:], digits[:])
	return b, err == nil
}

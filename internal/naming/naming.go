// Package naming handles names: GUIDs, the common form of error texts, and the closest known word to a wrong one.
package naming

import (
	"encoding/hex"
	"slices"
	"strings"
)

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

// maxLength bounds a fingerprint in bytes: errors differ near their beginning.
const maxLength = 200

// Fingerprint returns an error text without its numbers and ids, so that texts that differ in nothing else are counted and
// logged together: every word that contains a digit becomes
// "#". Words are separated by white space, quotes and punctuation. A hyphen, a dot and a colon
// inside a word do not end it, so that a GUID, a time, an address and a version are one word
// each.
func Fingerprint(text string) string {
	var b strings.Builder
	for len(text) > 0 && b.Len() < maxLength {
		n := strings.IndexFunc(text, breaks)
		if n < 0 {
			n = len(text)
		}
		if word := text[:n]; !strings.ContainsAny(word, "0123456789") {
			b.WriteString(word)
		} else { // with the punctuation that ends a sentence
			b.WriteString("#" + word[len(strings.TrimRight(word, ".:")):])
		}
		text = text[n:]
		n = strings.IndexFunc(text, func(r rune) bool { return !breaks(r) })
		if n < 0 {
			n = len(text)
		}
		b.WriteString(text[:n])
		text = text[n:]
	}
	return b.String()[:min(b.Len(), maxLength)]
}

func breaks(r rune) bool {
	return strings.ContainsRune(" \t\r\n\"'`()[]{}<>,;=/&?|", r)
}

const (
	farthest  = 24 // longer words are no slips of the keyboard
	beginning = 3  // letters that are enough to recognize a word
)

// Hint returns ", did you mean WORD?", or "" without a close word.
func Hint(wrong string, known []string) string {
	if word := Closest(wrong, known); word != "" {
		return ", did you mean " + word + "?"
	}
	return ""
}

// Closest returns the known word that is closest to a wrong one, or the only one that begins with it. It
// returns "" without a close word.
func Closest(wrong string, known []string) string {
	if len(wrong) > farthest || len(known) == 0 {
		return ""
	}
	best := slices.MinFunc(known, func(a, b string) int { return distance(wrong, a) - distance(wrong, b) })
	if d := distance(wrong, best); d == 1 && len(wrong) > 1 || d <= 1+len(best)/4 && 2*d < len(wrong) {
		return best
	}
	var longer []string
	for _, word := range known {
		if len(wrong) >= beginning && strings.HasPrefix(word, wrong) {
			longer = append(longer, word)
		}
	}
	if len(longer) != 1 {
		return ""
	}
	return longer[0]
}

// distance returns how many letters must be inserted, removed, replaced, or swapped with their
// neighbour, to turn a into b: the optimal string alignment distance.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replaced := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			rows[i][j] = min(replaced, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

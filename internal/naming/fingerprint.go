package naming

import "strings"

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
		b.WriteString(masked(text[:n]))
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

// masked returns the word, or "#" if it contains a digit, with the punctuation that ends a
// sentence.
func masked(word string) string {
	if !strings.ContainsAny(word, "0123456789") {
		return word
	}
	return "#" + word[len(strings.TrimRight(word, ".:")):]
}

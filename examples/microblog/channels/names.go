package channels

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/millrace/table"
)

// Limits of what people write, in characters.
const (
	MaxName  = 100 // of a channel, an owner or a user
	MaxTitle = 200
	MaxText  = 10_000
)

// CheckName returns what is wrong with the name of a channel, an owner or a user: [ErrInvalid], or nil. A name is a line
// of text with something to see in it.
func CheckName(name string) error { return checkText("the name", name, MaxName, "") }

// checkPost returns what is wrong with a post.
func checkPost(user, title, text string) error {
	for _, err := range []error{
		checkText("the name of the user", user, MaxName, ""),
		checkText("the title", title, MaxTitle, ""),
		checkText("the text", text, MaxText, "\n\r\t"),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkText returns what is wrong with a text of at most so many characters. Of the control characters it may
// have those that are allowed.
func checkText(what, text string, longest int, allowed string) error {
	switch n := utf8.RuneCountInString(text); {
	case !utf8.ValidString(text):
		return invalid("%s is not UTF-8", what)
	case n > longest:
		return invalid("%s has %d characters, and may have %d", what, n, longest)
	case strings.IndexFunc(text, visible) < 0:
		return invalid("%s is empty", what)
	}
	forbidden := func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune(allowed, r) }
	if i := strings.IndexFunc(text, forbidden); i >= 0 {
		r, _ := utf8.DecodeRuneInString(text[i:])
		return invalid("%s has the control character %q in it", what, r)
	}
	return nil
}

// visible reports whether a character leaves something to see by itself.
func visible(r rune) bool { return unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) }

// escaped are the characters that no key may have; % too, which some clients and servers decode twice; and ! itself.
const escaped = `!#%/?\`

// partitionOf returns the partition of a channel. No two names share one: each ! is followed by the byte that it stands
// for. Partitions have the order of the names' bytes, but for the characters that are escaped, which come right after
// the space.
func partitionOf(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if strings.IndexByte(escaped, name[i]) >= 0 {
			fmt.Fprintf(&b, "!%02X", name[i])
			continue
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

func channelKey(name string) table.Key { return table.Key{Partition: partitionOf(name)} }

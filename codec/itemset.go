package codec

import (
	"encoding/base64"
	"fmt"
	"math/bits"
	"strings"
)

// ItemSet is a set of items of a group, by index. It can be compared with ==. The zero value is
// empty.
type ItemSet string // bits, the lowest of each byte first, without zero bytes at the end

// NewItemSet returns the set of those of n items that has says are in it.
func NewItemSet(n int, has func(item int) bool) ItemSet {
	set := make([]byte, setSize(n))
	for i := range n {
		if has(i) {
			set[i/8] |= 1 << (i % 8)
		}
	}
	return trimmed(string(set))
}

// Has reports whether the set has the item.
func (s ItemSet) Has(item int) bool {
	return item >= 0 && item/8 < len(s) && s[item/8]&(1<<(item%8)) != 0
}

// Len returns how many items the set has.
func (s ItemSet) Len() int {
	n := 0
	for i := range len(s) {
		n += bits.OnesCount8(s[i])
	}
	return n
}

// setSize returns the size of the largest set of n items, in bytes.
func setSize(n int) int { return (n + 7) / 8 }

// trimmed returns the set without zero bytes at the end, so that equal sets are equal.
func trimmed(set string) ItemSet { return ItemSet(strings.TrimRight(set, "\x00")) }

// encodedSetSize returns the size of a set of this many bytes in the text of an envelope.
func encodedSetSize(size int) int { return base64.RawURLEncoding.EncodedLen(size) }

// encode returns the set as it is in the text of an envelope.
func (s ItemSet) encode() string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

func parseItemSet(text string) (ItemSet, error) {
	set, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return "", fmt.Errorf("no set of items: %w", err)
	}
	return trimmed(string(set)), nil
}

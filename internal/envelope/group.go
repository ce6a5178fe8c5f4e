package envelope

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/bits"
	"net/url"
	"strconv"
	"strings"
)

// MaxItems is how many items a group has at most. What has been done of it takes a bit for each in
// the head.
const MaxItems = 1 << 16

// maxFailure is how many bytes Head.Failure takes at most, escaped.
const maxFailure = 240

// ShortFailure returns the text, or its beginning if a head has no room for all of it.
func ShortFailure(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	size := 0
	for i, r := range text {
		if size += len(url.QueryEscape(string(r))); size > maxFailure {
			return text[:i]
		}
	}
	return text
}

// Group is the body of a message that carries several jobs: the encoded body of each. The head of
// the message says how many there are, in Head.Items.
type Group [][]byte

// Encode returns the body of the message. Each item is its length in decimal, a colon, the item,
// and a line feed, so that items of text make a body of text.
func (g Group) Encode() []byte {
	size := 0
	for _, item := range g {
		size += len(item) + len("65536:\n")
	}
	body := make([]byte, 0, size)
	for _, item := range g {
		body = strconv.AppendInt(body, int64(len(item)), 10)
		body = append(body, ':')
		body = append(body, item...)
		body = append(body, '\n')
	}
	return body
}

// DecodeGroup returns the items of a body that [Group.Encode] made of this many. The items share
// its memory. An error means that the body is broken: none of the items can be told.
func DecodeGroup(body []byte, items int) (Group, error) {
	if items < 1 || items > MaxItems {
		return nil, fmt.Errorf("decode a group: a group of %d items is outside 1…%d", items, MaxItems)
	}
	g := make(Group, 0, min(items, len(body)/len("0:\n")))
	for rest := body; len(rest) > 0; {
		item, after, err := cutItem(rest)
		if err != nil {
			return nil, fmt.Errorf("decode a group: item %d, at byte %d: %w", len(g), len(body)-len(rest), err)
		}
		g, rest = append(g, item), after
	}
	if len(g) != items {
		return nil, fmt.Errorf("decode a group: it has %d items, and the head says %d", len(g), items)
	}
	return g, nil
}

// maxLength bounds the digits of a length, so that it fits an int on every system.
const maxLength = 9

// cutItem returns the first item and what follows it.
func cutItem(body []byte) (item, rest []byte, err error) {
	digits, _, found := bytes.Cut(body[:min(len(body), maxLength+1)], []byte(":"))
	if !found {
		return nil, nil, fmt.Errorf("it does not begin with a length and a colon: %.20q", body)
	}
	length := 0
	for _, c := range digits {
		if c < '0' || c > '9' {
			return nil, nil, fmt.Errorf("its length is no number: %.20q", digits)
		}
		length = 10*length + int(c-'0')
	}
	if len(digits) == 0 || digits[0] == '0' && len(digits) > 1 {
		return nil, nil, fmt.Errorf("its length is no number: %.20q", digits)
	}
	after := body[len(digits)+1:]
	if length >= len(after) || after[length] != '\n' {
		return nil, nil, fmt.Errorf("it does not end after the %d bytes that it should have", length)
	}
	return after[:length:length], after[length+1:], nil
}

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
	return ItemSet(strings.TrimRight(string(set), "\x00"))
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

// encodedSetSize returns the size of a set of this many bytes in the text of an envelope.
func encodedSetSize(size int) int { return base64.RawURLEncoding.EncodedLen(size) }

func parseItemSet(text string) (ItemSet, error) {
	set, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return "", fmt.Errorf("no set of items: %w", err)
	}
	return ItemSet(strings.TrimRight(string(set), "\x00")), nil
}

package index

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Query selects the videos with credits that match all of its words. The zero value is invalid; make one with [ParseQuery].
type Query struct {
	words []pattern
}

// pattern matches terms.
type pattern struct {
	field  string // "" for every field
	word   string
	prefix bool // words that begin so, too
}

// ErrQuery means that a query is invalid.
var ErrQuery = errors.New("invalid query")

// Limits of a query.
const (
	maxQuery    = 500 // in bytes
	maxPatterns = 10
)

// ParseQuery reads a query: words, separated by spaces, such as "actor:zoe title:sea harbo*". A word may have a field before it,
// actor, director, keyword or title, and otherwise matches in every field; a star at its end also matches longer words. Capital
// and small letters are the same. A query has up to 500 bytes and 10 words. The error is [ErrQuery], on one line.
func ParseQuery(text string) (Query, error) {
	if len(text) > maxQuery {
		return Query{}, fmt.Errorf("%w: it has %d bytes, and may have %d", ErrQuery, len(text), maxQuery)
	}
	if !utf8.ValidString(text) {
		return Query{}, fmt.Errorf("%w: %.100q is not UTF-8", ErrQuery, text)
	}
	var q Query
	for _, one := range strings.Fields(text) {
		patterns, err := parsePatterns(one)
		if err != nil {
			return Query{}, fmt.Errorf("%w: %w", ErrQuery, err)
		}
		q.words = append(q.words, patterns...)
	}
	switch n := len(q.words); {
	case n == 0:
		return Query{}, fmt.Errorf("%w: it has no words; write some, such as actor:zoe title:sea", ErrQuery)
	case n > maxPatterns:
		return Query{}, fmt.Errorf("%w: it has %d words, and may have %d", ErrQuery, n, maxPatterns)
	}
	return q, nil
}

// parsePatterns reads the text between two spaces: usually one word, but "sea-wolf" is two.
func parsePatterns(text string) ([]pattern, error) {
	name, rest, found := strings.Cut(text, ":")
	if !found {
		name, rest = "", text
	}
	name = strings.ToLower(name)
	if found && !slices.ContainsFunc(fields, func(f field) bool { return f.name == name }) {
		return nil, fmt.Errorf("%.100q begins with no field; there are actor, director, keyword and title", text)
	}
	rest, prefix := strings.CutSuffix(rest, "*")
	if strings.Contains(rest, "*") {
		return nil, fmt.Errorf("%.100q has a star that is not at its end", text)
	}
	var patterns []pattern
	for _, word := range words(rest) {
		patterns = append(patterns, pattern{field: name, word: word})
	}
	if len(patterns) == 0 {
		return nil, fmt.Errorf("%.100q has no letter, digit or symbol to look for", text)
	}
	patterns[len(patterns)-1].prefix = prefix
	return patterns, nil
}

// String returns the query as ParseQuery reads it.
func (q Query) String() string {
	var all []string
	for _, p := range q.words {
		all = append(all, p.String())
	}
	return strings.Join(all, " ")
}

func (p pattern) String() string {
	text := p.word
	if p.field != "" {
		text = p.field + ":" + text
	}
	if p.prefix {
		text += "*"
	}
	return text
}

func (q Query) matches(c Credits) bool {
	terms := c.terms()
	for _, p := range q.words {
		if !slices.ContainsFunc(terms, p.matches) {
			return false
		}
	}
	return true
}

func (p pattern) matches(t term) bool {
	if p.field != "" && p.field != t.field {
		return false
	}
	return t.word == p.word || p.prefix && strings.HasPrefix(t.word, p.word)
}

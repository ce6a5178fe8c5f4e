package index

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// field is a part of credits that can be searched.
type field struct {
	name string
	of   func(Credits) []string
}

// fields are all of them, in the order of their names.
var fields = []field{
	{"actor", func(c Credits) []string { return c.Actors }},
	{"director", func(c Credits) []string { return c.Directors }},
	{"keyword", func(c Credits) []string { return c.Keywords }},
	{"title", func(c Credits) []string { return []string{c.Title} }},
}

type term struct{ field, word string }

// String returns the term as queries write it, which is its partition among the postings: a word has only characters that a key
// may have.
func (t term) String() string { return t.field + ":" + t.word }

// terms returns the terms of credits in order, each once.
func (c Credits) terms() []term {
	all := map[term]bool{}
	for _, f := range fields {
		for _, text := range f.of(c) {
			for _, word := range words(text) {
				all[term{f.name, word}] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b term) int {
		return cmp.Or(strings.Compare(a.field, b.field), strings.Compare(a.word, b.word))
	})
}

// maxWord is how many characters of a word count. Its partition is then far below the 1 KiB of a key.
const maxWord = 64

// words returns the words of a text, in small letters and cut to 64 characters. A word consists of letters, digits, accents and
// symbols such as emoji; everything else separates words. An accent that is a character of its own is not the same as one that
// is part of a letter.
func words(text string) []string {
	all := strings.FieldsFunc(text, func(r rune) bool { return !inWord(r) })
	for i, word := range all {
		all[i] = cut(strings.Map(fold, word))
	}
	return all
}

func inWord(r rune) bool {
	return r != utf8.RuneError && unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.So)
}

// fold returns the small letter for all letters that differ only in case, such as σ for Σ and ς.
func fold(r rune) rune {
	first := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		first = min(first, other)
	}
	return unicode.ToLower(first)
}

func cut(word string) string {
	n := 0
	for i := range word {
		if n++; n > maxWord {
			return word[:i]
		}
	}
	return word
}

// behind returns a text that is greater than all words that begin with the prefix, and less than all greater words: the prefix with the
// next character in place of its last one. No word has a character that has no next one.
func behind(prefix string) string {
	last, size := utf8.DecodeLastRuneInString(prefix)
	return prefix[:len(prefix)-size] + string(last+1)
}

package index

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/millrace/millrace/table"
)

// Page is one page of a search's results.
type Page struct {
	Videos []Video // in the order of their names

	// Next is where the next page begins, or "" if there is none: the from of the next [Index.Search].
	Next string
}

// maxPage is how many videos a page may have.
const maxPage = 1000

// Search returns up to limit videos that match a query, 1 to 1,000, from a place on; "" is the beginning. A video that is added or removed while the
// pages are read may be missing.
//
// Search holds a page of postings for each term that the query stands for, and nothing else, however many videos there are. A
// word with a star may stand for up to 100 terms, and otherwise fails with [ErrQuery].
func (x *Index) Search(ctx context.Context, q Query, from string, limit int) (Page, error) {
	if len(q.words) == 0 {
		return Page{}, fmt.Errorf("%w: it has no words", ErrQuery)
	}
	if limit < 1 || limit > maxPage {
		return Page{}, fmt.Errorf("search for %s: the limit is %d, and may be 1 to %d", q, limit, maxPage)
	}
	words, err := x.open(ctx, q)
	if err != nil {
		return Page{}, fmt.Errorf("search for %s: %w", q, err)
	}
	p, err := x.collect(ctx, q, words, from, limit)
	if err != nil {
		return Page{}, fmt.Errorf("search for %s: %w", q, err)
	}
	return p, nil
}

// collect makes a page of the videos that have postings under all words.
func (x *Index) collect(ctx context.Context, q Query, words []anyOf, from string, limit int) (Page, error) {
	var p Page
	for {
		name, found, err := intersect(ctx, words, from)
		if err != nil || !found {
			return p, err
		}
		v, err := x.read(ctx, name)
		if err != nil {
			return Page{}, err
		}
		if q.matches(v.Credits) { // or the posting is about to go
			if len(p.Videos) == limit {
				p.Next = name
				return p, nil
			}
			p.Videos = append(p.Videos, v)
		}
		from = after(name)
	}
}

// firstRow is the smallest row that is not empty.
const firstRow = " "

// after returns the smallest row behind a row.
func after(row string) string { return row + firstRow }

// intersect returns the first video, from a name on, that all words have. Each word skips ahead to the candidate of the others.
func intersect(ctx context.Context, words []anyOf, from string) (video string, found bool, err error) {
	video = max(from, firstRow)
	for agreed := false; !agreed; {
		agreed = true
		for _, word := range words {
			next, found, err := word.seek(ctx, video)
			if err != nil || !found {
				return "", false, err
			}
			if next != video {
				video, agreed = next, false
				break // the rarest word first again: it may skip more
			}
		}
	}
	return video, true, nil
}

// open finds the terms that each word stands for. The word with the fewest postings comes first.
func (x *Index) open(ctx context.Context, q Query) ([]anyOf, error) {
	type counted struct {
		word  anyOf
		count int64
	}
	var all []counted
	for _, p := range q.words {
		terms, err := x.termsOf(ctx, p)
		if err != nil {
			return nil, err
		}
		var c counted
		for _, t := range terms {
			c.word = append(c.word, &reader{store: x.postings, term: t})
		}
		if c.count, err = x.countOf(ctx, p, terms); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	slices.SortStableFunc(all, func(a, b counted) int { return cmp.Compare(a.count, b.count) })
	var words []anyOf
	for _, c := range all {
		words = append(words, c.word)
	}
	return words, nil
}

// countOf returns how many postings a word has. For a word with a star this would be too many requests: it is taken for frequent.
func (x *Index) countOf(ctx context.Context, p pattern, terms []term) (sum int64, err error) {
	if p.prefix {
		return math.MaxInt64, nil
	}
	for _, t := range terms {
		head, err := find(ctx, x.postings, t.head())
		if err != nil {
			return 0, fmt.Errorf("count %s: %w", t, err)
		}
		sum += head.Int(countProperty)
	}
	return sum, nil
}

// maxTermsOfWord is how many terms a word with a star may stand for.
const maxTermsOfWord = 100

// termsOf returns the terms that a word stands for.
func (x *Index) termsOf(ctx context.Context, p pattern) (terms []term, err error) {
	for _, f := range fields {
		if p.field != "" && p.field != f.name {
			continue
		}
		if !p.prefix {
			terms = append(terms, term{f.name, p.word})
			continue
		}
		entries := table.Query{Partition: f.name, FromRow: p.word, ToRow: behind(p.word), Top: maxTermsOfWord + 1}
		for e, err := range table.All(ctx, x.terms, entries) {
			if err != nil {
				return nil, err
			}
			if terms = append(terms, term{f.name, e.Row}); len(terms) > maxTermsOfWord {
				return nil, fmt.Errorf("%w: more than %d words begin as %s; write more of it", ErrQuery, maxTermsOfWord, p)
			}
		}
	}
	return terms, nil
}

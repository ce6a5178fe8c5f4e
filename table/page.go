package table

import (
	"encoding/base64"
	"iter"
	"strings"
)

// Token is the place at which a page begins. It is opaque, is valid for the query that it came from, and
// consists of characters that neither JSON nor a URL escapes.
type Token string

// TokenFor returns the token of a page that begins at a key, whether or not an entity has that key. It is for authors of
// stores; a store may have tokens of its own.
func TokenFor(k Key) Token {
	return Token(base64.RawURLEncoding.EncodeToString([]byte(k.Partition + "\x00" + k.Row)))
}

// Key returns the key of a token that TokenFor made, or [ErrInvalid]. It is for authors of stores.
func (t Token) Key() (Key, error) {
	text, err := base64.RawURLEncoding.DecodeString(string(t))
	partition, row, found := strings.Cut(string(text), "\x00")
	k := Key{partition, row}
	if err != nil || !found || k.Check() != nil {
		return Key{}, invalid("use Next of the page before, unchanged", "%.100q is no token", string(t))
	}
	return k, nil
}

// Start returns the smallest key that a page may have: that of the token, or the beginning of the
// query's range. It is for authors of stores.
func (q Query) Start() (Key, error) {
	start := Key{q.Partition, q.FromRow}
	if q.Token == "" {
		return start, nil
	}
	at, err := q.Token.Key()
	if err != nil {
		return Key{}, err
	}
	if at.Less(start) || q.past(at) {
		return Key{}, invalid("use it with the query that it came from", "the token is of another query")
	}
	return at, nil
}

// past reports whether a key is behind all keys of the query's range.
func (q Query) past(k Key) bool {
	return q.Partition != "" && (k.Partition != q.Partition || q.ToRow != "" && k.Row >= q.ToRow)
}

// Limits of a page. The service has the first two; the third stands for the time that it spends on one.
const (
	maxPageBytes = 4 << 20
	maxExamined  = 10_000
)

// Collect makes the page of a query from a table's entities in the order of their keys, from Query.Start on. A page
// ends where the service may end one: at Query.Top or 1,000 entities, at 4 MiB, at the end of a partition, and after
// 10,000 entities that the filter leaves out. It is for authors of stores; it reads no further than it must.
func (q Query) Collect(entities iter.Seq2[Entity, error]) (Page, error) {
	top := q.Top
	if top == 0 {
		top = maxTop
	}
	var p Page
	var last Key
	size, examined := 0, 0
	for e, err := range entities {
		if err != nil {
			return Page{}, err
		}
		if q.past(e.Key) {
			break
		}
		matches := q.Filter.Match(e)
		full := len(p.Entities) == top || examined == maxExamined || examined > 0 && e.Partition != last.Partition ||
			matches && size+e.Size() > maxPageBytes && size > 0
		if full {
			p.Next = TokenFor(e.Key)
			break
		}
		if examined++; matches {
			p.Entities = append(p.Entities, e)
			size += e.Size()
		}
		last = e.Key
	}
	return p, nil
}

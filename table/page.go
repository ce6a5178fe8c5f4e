package table

import (
	"encoding/base64"
	"iter"
	"strings"
)

// Token is the place at which a page begins. It is opaque, is valid for the query that it came from, with any Top, and
// consists of ASCII characters that neither JSON nor a URL escapes. The place need not be that of an entity, and stays
// valid whatever is inserted and deleted.
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
	// The decoder skips line ends and ignores unused bits, so only the key's own token is taken for it.
	if err != nil || !found || k.Check() != nil || TokenFor(k) != t {
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
	if at.Compare(start) < 0 || q.past(at) {
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
// ends where the service may end one, by "Query timeout and pagination": at Query.Top or 1,000 entities, at the end of
// a partition if another one follows, and after some work, which is 4 MiB of entities or 10,000 that were compared with
// the filter. The token is the key of the first entity after the page, so that there is none when no entity
// follows. It is for authors of stores. It reads one entity more than it returns, and stops at the first error.
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
		more := 0
		matches := q.Filter.Match(e)
		if matches {
			more = e.Size()
		}
		full := len(p.Entities) == top || examined == maxExamined || examined > 0 && e.Partition != last.Partition ||
			size > 0 && size+more > maxPageBytes
		if full {
			p.Next = TokenFor(e.Key)
			break
		}
		if examined++; matches {
			p.Entities = append(p.Entities, e)
			size += more
		}
		last = e.Key
	}
	return p, nil
}

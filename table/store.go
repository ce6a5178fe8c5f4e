package table

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/serviceerror"
)

// Store keeps the entities of one table. The package comment describes the guarantees of every store.
//
// Arguments that break a rule fail with [ErrInvalid] or [ErrTooLarge] before anything happens:
// [Key.Check], [Entity.Check], [CheckGroup] and [Query.Check] say so. Errors are an [*Error] on one
// line, whose Op is "insert", "get", "update", "delete", "apply" or "query", with the key. Beside
// an error the other results are zero.
type Store interface {
	// Insert stores an entity that does not exist and returns its version; otherwise it fails with [ErrExists].
	Insert(ctx context.Context, e Entity) (ETag, error)

	// Get returns an entity, or fails with [ErrMissing].
	Get(ctx context.Context, k Key) (Entity, error)

	// Update replaces an entity, with all its properties, if its version is still e.ETag, and
	// returns the new version. It fails with [ErrPreconditionFailed] if the version is another one,
	// even of another store, and with [ErrMissing] if the entity does not exist. With [Any] it
	// replaces whatever version there is. Without an ETag, or with one that is not printable ASCII,
	// it fails with [ErrInvalid].
	Update(ctx context.Context, e Entity) (ETag, error)

	// Delete deletes an entity under the same conditions as Update: it fails with [ErrMissing] if the entity does
	// not exist, which is success for a caller that repeats a deletion.
	Delete(ctx context.Context, k Key, etag ETag) error

	// Apply makes up to 100 changes of different entities in one partition: all of them or, with an error,
	// none, unless that is [ErrUnavailable] or the end of the context. It returns the new versions in the order
	// of the changes; that of a deleted entity is "". The error is that of a change that failed, and names its
	// key. [CheckGroup] says what a group may be.
	Apply(ctx context.Context, changes []Change) ([]ETag, error)

	// Query returns a page of entities, in the order of their keys, and where the next page begins. A page
	// is a snapshot if the query has a partition; two pages are not one snapshot. [Query.Check] says what a query
	// may be. A token that is of no query, or of another one, fails with [ErrInvalid] where a store can tell.
	Query(ctx context.Context, q Query) (Page, error)
}

// Query selects entities. The zero value selects all.
type Query struct {
	// Partition restricts the query to one partition. Defaults to all partitions, which scans the table.
	Partition string

	// FromRow and ToRow restrict a query with a partition to the rows from FromRow, inclusively, to ToRow,
	// exclusively. They default to all rows.
	FromRow, ToRow string

	// Filter restricts the query to the entities that match it; the store still reads the others. Defaults to
	// all entities.
	Filter Filter

	// Top is how many entities a page has at most, 1 to 1,000. Defaults to 1,000.
	Top int

	// Token is where the page begins: Next of the page before, of the same query. Defaults to the beginning.
	Token Token
}

// Page is a part of what a query selects.
type Page struct {
	// Entities are in the order of their keys. They may be fewer than Query.Top, and even none, while there are
	// more: only Next tells.
	Entities []Entity

	// Next is where the next page begins, or "" if there is none. An entity that is inserted before that place
	// after this page was read is in no page; one that is inserted behind it is.
	Next Token
}

// All yields all entities that a query selects, page by page from q.Token on; q.Top is the size of a page. An
// error is yielded last, with a zero Entity.
func All(ctx context.Context, s Store, q Query) iter.Seq2[Entity, error] {
	return func(yield func(Entity, error) bool) {
		for {
			page, err := s.Query(ctx, q)
			if err != nil {
				yield(Entity{}, err)
				return
			}
			for _, e := range page.Entities {
				if !yield(e, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			q.Token = page.Next
		}
	}
}

// Key identifies an entity in its table. Entities are ordered by partition and then by row, as [Key.Compare] does.
// A partition is what groups of changes and snapshots reach.
type Key struct {
	Partition string // never empty
	Row       string // may be empty
}

// String returns the key as errors show it.
func (k Key) String() string { return k.Partition + "/" + k.Row }

// Compare returns -1 if k comes before other, 0 if they are the same and 1 if k comes after other: by partition and
// then by row, each by its bytes. A service that compares UTF-16 has the characters from U+E000 to U+FFFF after those
// from U+10000 on; apart from these, that is the same order.
func (k Key) Compare(other Key) int {
	if order := strings.Compare(k.Partition, other.Partition); order != 0 {
		return order
	}
	return strings.Compare(k.Row, other.Row)
}

// ETag is a version of an entity. Every change gives an entity a version that it never had, also when it
// was deleted in between.
type ETag string

// Any is the ETag of changes that do not depend on the version: the last writer wins.
const Any ETag = "*"

// GUID is the value of a property with that type, which other programs may write: 36 characters, hexadecimal
// digits and hyphens. Upper and lower case are the same; stores keep lower case.
type GUID string

// Entity is what a table keeps under a key. A store keeps nothing of an entity that it was given, and what it returns
// belongs to the receiver, who may change it.
type Entity struct {
	Key

	// Properties are its values by name. A value is a string, bool, int32, int64, float64, time.Time, []byte
	// or [GUID]. Stores keep times in UTC, cut to 100 ns. [Entity.Check] says what names and values may be.
	// Nil means none; in an entity that a store returns it is never nil.
	Properties map[string]any

	// ETag is the version that was read. [Store.Update] compares it; [Store.Insert] ignores it.
	ETag ETag

	// Modified is when the entity was last changed, by the store's clock. Changes ignore it.
	Modified time.Time
}

// Clone returns a copy that shares nothing with e, with its properties as stores keep them: not nil, times in UTC and
// cut to 100 ns, GUIDs in lower case.
func (e Entity) Clone() Entity {
	properties := maps.Clone(e.Properties)
	if properties == nil {
		properties = map[string]any{}
	}
	for name, value := range properties {
		properties[name] = kept(value)
	}
	e.Properties = properties
	return e
}

// Text returns a property that is a string, or "" if there is none.
func (e Entity) Text(property string) string { return valueOf[string](e, property) }

// Time returns a property that is a time, or the zero time if there is none.
func (e Entity) Time(property string) time.Time { return valueOf[time.Time](e, property) }

// Int returns a property that is an int64 or int32, or 0 if there is none.
func (e Entity) Int(property string) int64 {
	if small, ok := e.Properties[property].(int32); ok {
		return int64(small)
	}
	return valueOf[int64](e, property)
}

// Bool returns a property that is a bool, or false if there is none.
func (e Entity) Bool(property string) bool { return valueOf[bool](e, property) }

func valueOf[T any](e Entity, property string) T {
	value, _ := e.Properties[property].(T)
	return value
}

func kept(value any) any {
	switch v := value.(type) {
	case time.Time:
		return v.UTC().Truncate(timePrecision)
	case []byte:
		return append([]byte{}, v...) // never nil
	case GUID:
		return GUID(strings.ToLower(string(v)))
	}
	return value
}

// timePrecision is that of the service's Edm.DateTime.
const timePrecision = 100 * time.Nanosecond

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
	top := cmp.Or(q.Top, maxTop)
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

// Errors of every store. Match them with [errors.Is]; [errors.As] finds the [*Error] that carries one.
var (
	// ErrMissing means that the entity does not exist.
	ErrMissing = errors.New("entity does not exist")

	// ErrExists means that an entity with this key exists already.
	ErrExists = errors.New("entity already exists")

	// ErrPreconditionFailed means that another writer has changed the entity since it was read. Read it again,
	// apply the change to what it is now, and write it, as [Modify] does.
	ErrPreconditionFailed = errors.New("entity was changed since it was read")

	// ErrTooLarge means that an entity, a value or a group of changes exceeds a limit of the service.
	ErrTooLarge = errors.New("too large")

	// ErrUnavailable means that the store was busy or failing, or did not respond. The same call may succeed
	// later; a change may have taken effect.
	ErrUnavailable = errors.New("store unavailable")

	// ErrUnauthorized means that authentication or authorization failed. Waiting does not help.
	ErrUnauthorized = errors.New("unauthorized")

	// ErrInvalid means that arguments are invalid, or that the store refused them.
	ErrInvalid = errors.New("invalid argument")
)

// Transient reports whether the same call may succeed later. A change may have taken effect.
func Transient(err error) bool { return errors.Is(err, ErrUnavailable) }

// Error is a failed operation: what was attempted, on which entity, what the store said, and what to do. It
// contains no key of an account and no signature.
type Error struct {
	Op    string // operation, such as "insert"
	Table string // name of the table
	Key   Key    // entity of the operation; of a group, of the change that failed; of a query, only its partition

	Kind error // a sentinel of this package; nil if none fits, or Err is one

	Status    int    // HTTP status; 0 if there was no response
	Code      string // storage error code, such as "UpdateConditionNotSatisfied"; "" if none
	RequestID string // the service's x-ms-request-id; "" if none

	Detail string // what is wrong, for people
	Hint   string // what to do about it; "" if there is nothing to say
	Err    error  // underlying error without secrets; nil if none
}

// Error returns all of it on one line.
func (e *Error) Error() string {
	return e.failure().Text(e.subject())
}

// Unwrap returns the kind and the underlying error, for [errors.Is] and [errors.As].
func (e *Error) Unwrap() []error { return e.failure().Unwrap() }

func (e *Error) failure() serviceerror.Failure {
	return serviceerror.Failure{
		Kind: e.Kind, Status: e.Status, Code: e.Code, RequestID: e.RequestID, Detail: e.Detail, Hint: e.Hint, Err: e.Err,
	}
}

// subject says what was attempted on which entity. A refused key may be any text, so it is quoted and cut.
func (e *Error) subject() string {
	parts := []string{}
	if e.Op != "" {
		parts = append(parts, e.Op)
	}
	if e.Table != "" {
		parts = append(parts, e.Table)
	}
	if e.Key != (Key{}) {
		parts = append(parts, fmt.Sprintf("%.200q", e.Key.String()))
	}
	return strings.Join(parts, " ")
}

func invalid(hint, format string, args ...any) error {
	return &Error{Kind: ErrInvalid, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

func tooLarge(hint, format string, args ...any) error {
	return &Error{Kind: ErrTooLarge, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

// Explain adds what was attempted on which entity to an error of a store; nil stays nil. An error of this package's
// checks, which says only what is wrong, is completed, and keeps a key that it names; every other error is wrapped. It
// is for authors of stores.
func Explain(op, table string, k Key, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Err: err}
	// An error in the chain of another one is not taken out of it: the text around it would be lost.
	if bare, ok := err.(*Error); ok && bare.Op == "" { //nolint:errorlint // see above
		c := *bare
		e = &c
	}
	e.Op, e.Table = op, table
	if e.Key == (Key{}) {
		e.Key = k
	}
	return e
}

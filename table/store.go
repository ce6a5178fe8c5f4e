package table

import (
	"context"
	"iter"
)

// Store keeps the entities of one table. The package comment describes the guarantees of every store.
//
// Arguments that break a rule fail with [ErrInvalid] or [ErrTooLarge] before anything happens. A call whose
// context ends fails with the context's cause; a change may then have taken effect.
type Store interface {
	// Insert stores an entity that does not exist and returns its version; otherwise it fails with [ErrExists].
	Insert(ctx context.Context, e Entity) (ETag, error)

	// Get returns an entity, or fails with [ErrMissing].
	Get(ctx context.Context, k Key) (Entity, error)

	// Update replaces an entity, with all its properties, if its version is still e.ETag, and returns the new
	// version. It fails with [ErrPreconditionFailed] if the version is another one and with [ErrMissing] if
	// the entity does not exist. With [Any] it replaces whatever version there is. Without an ETag it fails with
	// [ErrInvalid].
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

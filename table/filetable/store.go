package filetable

import (
	"context"
	"iter"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/table"
)

// store is one table of a file.
type store struct {
	db     *DB
	name   string // as it was asked for
	bucket []byte
}

var _ table.Store = (*store)(nil)

func (s *store) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	return s.change(ctx, "insert", table.Inserting(e))
}

func (s *store) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	return s.change(ctx, "update", table.Updating(e))
}

func (s *store) Delete(ctx context.Context, k table.Key, etag table.ETag) error {
	_, err := s.change(ctx, "delete", table.Deleting(k, etag))
	return err
}

func (s *store) change(ctx context.Context, op string, c table.Change) (table.ETag, error) {
	etags, err := s.apply(ctx, c.Check(), []table.Change{c})
	if err != nil {
		return "", table.Explain(op, s.name, c.Entity().Key, err)
	}
	return etags[0], nil
}

func (s *store) Apply(ctx context.Context, changes []table.Change) ([]table.ETag, error) {
	etags, err := s.apply(ctx, table.CheckGroup(changes), changes)
	return etags, table.Explain("apply", s.name, table.Key{}, err)
}

func (s *store) apply(ctx context.Context, bad error, changes []table.Change) ([]table.ETag, error) {
	if err := ready(ctx, bad); err != nil {
		return nil, err
	}
	return s.db.submit(ctx, newRequest(s.bucket, changes))
}

func (s *store) Get(ctx context.Context, k table.Key) (e table.Entity, err error) {
	if err = ready(ctx, k.Check()); err == nil {
		err = s.db.view(func(tx *bolt.Tx) (err error) { e, err = s.read(tx, keyOf(k)); return err })
	}
	return e, table.Explain("get", s.name, k, err)
}

func (s *store) read(tx *bolt.Tx, key []byte) (table.Entity, error) {
	if bucket := tx.Bucket(s.bucket); bucket != nil {
		if record := bucket.Get(key); record != nil {
			return readEntity(key, record)
		}
	}
	return table.Entity{}, &table.Error{Kind: table.ErrMissing}
}

func (s *store) Query(ctx context.Context, q table.Query) (p table.Page, err error) {
	bad := q.Check()
	start, tokenErr := q.Start()
	if bad == nil {
		bad = tokenErr
	}
	if err = ready(ctx, bad); err == nil {
		err = s.db.view(func(tx *bolt.Tx) (err error) {
			p, err = q.Collect(s.from(ctx, tx, start))
			return err
		})
	}
	return p, table.Explain("query", s.name, table.Key{Partition: q.Partition}, err)
}

// from yields the entities from a key on. An error, which names the entity if it is damaged, is yielded last.
func (s *store) from(ctx context.Context, tx *bolt.Tx, start table.Key) iter.Seq2[table.Entity, error] {
	return func(yield func(table.Entity, error) bool) {
		bucket := tx.Bucket(s.bucket)
		if bucket == nil {
			return
		}
		cursor := bucket.Cursor()
		for key, record := cursor.Seek(keyOf(start)); key != nil; key, record = cursor.Next() {
			e, err := readEntity(key, record)
			if err != nil {
				err = &table.Error{Key: readKey(key), Err: err, Hint: "delete it with table.Any, or replace it"}
			}
			if err == nil && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// ready returns the error for which a call must not begin: that of its arguments, or the cause of an ended
// context.
func ready(ctx context.Context, bad error) error {
	if bad != nil {
		return bad
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

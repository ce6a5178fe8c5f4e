package boltfile

import (
	"errors"
	"fmt"
	"slices"
)

const bucketHeader = 16 // root page, sequence

// Bucket is where the tree of a bucket begins: at a page, or within the root if it is small.
type Bucket struct {
	Name   []byte
	page   uint64
	inline []byte
}

// Buckets reads the root of the commit, and returns its buckets in the order of their names. After an error, which
// names the damaged page, the commit cannot be used.
func (r *Reader) Buckets() ([]Bucket, error) {
	var all []Bucket
	w := walker{r: r, damaged: Stop, visit: func(e Entry) error {
		if !e.Bucket || len(e.Value) < bucketHeader {
			return fmt.Errorf("the entry %q is not a bucket", e.Key)
		}
		b := Bucket{Name: slices.Clone(e.Key), page: native.Uint64(e.Value), inline: slices.Clone(e.Value[bucketHeader:])}
		if b.page != 0 && len(b.inline) > 0 {
			return fmt.Errorf("the bucket %q is both inline and on a page", e.Key)
		}
		all = append(all, b)
		return nil
	}}
	if err := w.page(r.Meta.Root, nil, nil, 0); err != nil {
		return nil, err
	}
	return all, nil
}

// Walk visits the entries of a bucket in the order of their keys. An error of visit means that the entry is damage.
//
// damaged is called for every damaged page, with an error that names it. If it returns nil, the walk goes on with the
// next page, after the entries before the damaged one were visited; otherwise the walk ends with the error it returns.
// See [Stop].
func (r *Reader) Walk(b Bucket, visit func(Entry) error, damaged func(why error) error) error {
	w := walker{r: r, visit: visit, damaged: damaged}
	if b.page != 0 {
		return w.page(b.page, nil, nil, 0)
	}
	if err := w.inline(b.inline); err != nil {
		return damaged(fmt.Errorf("its page within the root: %w", err))
	}
	return nil
}

// Stop is for a walk that ends with the first damage.
func Stop(why error) error { return why }

// inline visits the entries of a bucket within the root. Its page must have id 0, because bbolt frees pages by id.
func (w *walker) inline(b []byte) error {
	if len(b) < pageHeader {
		return errors.New("it is truncated")
	}
	if id, overflow := native.Uint64(b), native.Uint32(b[12:]); id != 0 || overflow != 0 {
		return fmt.Errorf("it has page id %d and overflow %d", id, overflow)
	}
	if flags := native.Uint16(b[8:]); flags != leafPage {
		return fmt.Errorf("it has the flags %#x and is not a leaf", flags)
	}
	return w.leaf(b, nil, nil)
}

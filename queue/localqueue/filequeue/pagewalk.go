package filequeue

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// bucketRoot is where the tree of a bucket begins: at a page, or inline.
type bucketRoot struct {
	name   bucket
	page   uint64
	inline []byte
}

// visitEntry is called for every entry of a bucket. Both slices are valid until it returns.
type visitEntry func(key, value []byte)

// bucketRoots reads the root. An error means that the commit cannot be used.
func (in *inspector) bucketRoots() ([]bucketRoot, error) {
	var found []bucketRoot
	var bad error
	root := func(name []byte, value []byte, isBucket bool) {
		if !isBucket || len(value) < bucketHeader {
			bad = errors.New("its root has an entry that is not a bucket")
			return
		}
		t := bucketRoot{name: slices.Clone(name), page: binary.NativeEndian.Uint64(value), inline: slices.Clone(value[bucketHeader:])}
		if t.page != 0 && len(t.inline) > 0 {
			bad = fmt.Errorf("the bucket %q is both inline and on a page", name)
			return
		}
		found = append(found, t)
	}
	damaged := in.damaged
	in.damaged = func(page uint64, why error) { bad = fmt.Errorf("page %d of its root: %w", page, why) }
	in.walk(in.meta.root, nil, nil, 0, root)
	in.damaged = damaged
	return found, bad
}

// bucket visits the entries of one bucket, as many as can be read.
func (in *inspector) bucket(t bucketRoot, visit visitEntry) {
	plain := func(key, value []byte, isBucket bool) {
		if isBucket {
			in.damaged(t.page, errors.New("it has a nested bucket"))
			return
		}
		visit(key, value)
	}
	if t.page != 0 {
		in.walk(t.page, nil, nil, 0, plain)
		return
	}
	if err := in.inline(t.inline, plain); err != nil {
		in.damaged(0, fmt.Errorf("bucket %q: %w", t.name, err))
	}
}

// inline visits the entries of a bucket that is small enough to be inside the root. Its
// page must have id 0: bbolt frees pages by id.
func (in *inspector) inline(b []byte, visit func(key, value []byte, isBucket bool)) error {
	n := binary.NativeEndian
	if len(b) < pageHeader {
		return errors.New("it is truncated")
	}
	if id, overflow := n.Uint64(b), n.Uint32(b[12:]); id != 0 || overflow != 0 {
		return fmt.Errorf("inline bucket has page id %d and overflow %d", id, overflow)
	}
	return in.leaf(b, nil, nil, visit)
}

// walk visits the leaves below a page, whose keys must begin with low and, unless high is
// nil, be below high: bbolt looks keys up by these bounds, and finds the parent's entry by
// the first key of a page. Both are nil for a root.
func (in *inspector) walk(page uint64, low, high []byte, depth int, visit func(key, value []byte, isBucket bool)) {
	if depth == maxDepth {
		in.damaged(page, errors.New("the tree is too deep"))
		return
	}
	b, err := in.read(page, depth)
	if err != nil {
		in.damaged(page, err)
		return
	}
	if binary.NativeEndian.Uint16(b[8:]) == branchPage {
		in.branch(page, b, low, high, depth, visit)
		return
	}
	if err := in.leaf(b, low, high, visit); err != nil {
		in.damaged(page, err)
	}
}

// leaf visits the entries of a leaf up to the first damaged one.
func (in *inspector) leaf(b, low, high []byte, visit func(key, value []byte, isBucket bool)) error {
	previous := low
	if low != nil && binary.NativeEndian.Uint16(b[10:]) == 0 {
		return errors.New("empty leaf page")
	}
	return elements(b, func(i int, leaf bool, e element) error {
		if !leaf {
			return errors.New("not a leaf page")
		}
		if err := checkOrder(i, previous, e.key, high); err != nil {
			return err
		}
		previous = e.key
		visit(e.key, e.value, e.bucket)
		return nil
	})
}

// branch walks the children of a page, even if some are damaged.
func (in *inspector) branch(page uint64, b, low, high []byte, depth int, visit func(key, value []byte, isBucket bool)) {
	var children []element
	err := elements(b, func(i int, _ bool, e element) error {
		previous := low
		if i > 0 {
			previous = children[i-1].key
		}
		if err := checkOrder(i, previous, e.key, high); err != nil {
			return err
		}
		children = append(children, e)
		return nil
	})
	if err == nil && len(children) < 2 {
		err = errors.New("branch page with one entry") // bbolt never leaves one, and cannot delete from it
	}
	if err != nil {
		in.damaged(page, err)
	}
	for i, c := range children {
		until := high
		if i+1 < len(children) {
			until = children[i+1].key
		}
		in.walk(c.child, c.key, until, depth+1, visit)
	}
}

// checkOrder checks a key against the one before. The first key must equal the lower bound.
func checkOrder(i int, previous, key, high []byte) error {
	c := bytes.Compare(previous, key)
	if i > 0 && c >= 0 || i == 0 && previous != nil && c != 0 || high != nil && bytes.Compare(key, high) >= 0 {
		return fmt.Errorf("entry %d is out of order", i)
	}
	return nil
}

// scan visits every record on every page that looks like a leaf, of any commit: a record
// may occur several times, in several states, and so may deleted ones. It visits only
// records whose checksum matches a bucket.
func (in *inspector) scan(visit func(in bucket, key, value []byte)) {
	size := uint64(in.meta.pageSize)
	for page := uint64(2); (page+1)*size <= uint64(in.size); page++ {
		b, err := in.readAt(page, size, 0)
		if err != nil || binary.NativeEndian.Uint64(b) != page || binary.NativeEndian.Uint16(b[8:]) != leafPage {
			continue
		}
		if overflow := uint64(binary.NativeEndian.Uint32(b[12:])); overflow > 0 {
			if (overflow+1)*size > maxPage || (page+overflow+1)*size > uint64(in.size) {
				continue
			}
			if b, err = in.readAt(page, (overflow+1)*size, 0); err != nil {
				continue
			}
		}
		_ = elements(b, func(_ int, leaf bool, e element) error {
			if !leaf || e.bucket {
				return nil
			}
			for _, name := range buckets {
				if _, err := openRecord(name, e.key, e.value); err == nil {
					visit(name, e.key, e.value)
				}
			}
			return nil
		}) // up to the first damaged entry
	}
}

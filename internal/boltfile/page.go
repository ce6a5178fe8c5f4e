package boltfile

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"slices"
)

const (
	metaSize    = 64
	metaMagic   = 0xED0CDAED
	metaVersion = 2
	noFreelist  = 1<<64 - 1

	minPageSize = 1 << 9
	maxPageSize = 1 << 16 // of any machine
)

// ErrNoMeta means that the file has no commit, so that it is not one of bbolt or its beginning is damaged.
var ErrNoMeta = errors.New("neither of its two meta pages can be read")

// Meta is the content of a meta page: the root of one commit. Commits alternate between two meta pages. The zero value
// is that of a page that cannot be read.
type Meta struct {
	PageSize uint32 // in bytes
	Root     uint64 // page of the root
	Freelist uint64 // page of the list of free pages; see [Meta.HasFreelist]
	High     uint64 // pages at and above it were never used
	Commit   uint64 // bbolt's number of the commit
	Slot     uint64 // 0 for the first meta page, 1 for the second
}

// HasFreelist reports whether the commit has a list of free pages.
func (m Meta) HasFreelist() bool { return m.Freelist != noFreelist }

func (m Meta) readable() bool { return m.PageSize != 0 }

// misplaced reports whether bbolt would have written the commit to the other meta page.
func (m Meta) misplaced() bool { return m.readable() && m.Commit%2 != m.Slot }

// readMetas returns the meta page of the newest commit and the other one. The second page is at the page size, which
// only the first one knows: if that is damaged, all sizes are tried.
func readMetas(file io.ReaderAt) (newest, previous Meta, err error) {
	newest = readMeta(file, 0)
	for at := int64(minPageSize); at <= maxPageSize && !previous.readable(); at *= 2 {
		if !newest.readable() || at == int64(newest.PageSize) {
			previous = readMeta(file, at)
		}
	}
	if previous.Commit > newest.Commit || !newest.readable() {
		newest, previous = previous, newest
	}
	if !newest.readable() {
		return Meta{}, Meta{}, ErrNoMeta
	}
	return newest, previous, nil
}

// readMeta returns the meta page at an offset, or zero.
func readMeta(file io.ReaderAt, at int64) Meta {
	var page [pageHeader + metaSize]byte
	if _, err := file.ReadAt(page[:], at); err != nil {
		return Meta{}
	}
	b := page[pageHeader:]
	h := fnv.New64a()
	h.Write(b[:metaSize-8])
	m := Meta{PageSize: native.Uint32(b[8:]), Root: native.Uint64(b[16:]), Freelist: native.Uint64(b[32:]),
		High: native.Uint64(b[40:]), Commit: native.Uint64(b[48:]), Slot: uint64(min(at, 1))}
	sound := native.Uint32(b) == metaMagic && native.Uint32(b[4:]) == metaVersion && native.Uint64(b[56:]) == h.Sum64() &&
		m.PageSize >= minPageSize && m.PageSize <= maxPageSize && m.PageSize&(m.PageSize-1) == 0
	if !sound || at != 0 && int64(m.PageSize) != at {
		return Meta{}
	}
	return m
}

// CheckFreelist checks the list of free pages, if the commit has one. It marks its pages as seen, so that a walk finds
// one that is both free and in use. bbolt would give it to the next commit.
func (r *Reader) CheckFreelist() error {
	if !r.Meta.HasFreelist() {
		return nil
	}
	b, err := r.read(r.Meta.Freelist, 0)
	if err != nil {
		return err
	}
	if flags := native.Uint16(b[8:]); flags != freelistPage {
		return fmt.Errorf("page %d has the flags %#x", r.Meta.Freelist, flags)
	}
	count, list := uint64(native.Uint16(b[10:])), b[pageHeader:]
	if count == math.MaxUint16 { // the number is the first of the list
		count, list = native.Uint64(list), list[8:]
	}
	if count > uint64(len(list))/8 {
		return fmt.Errorf("page %d has %d entries and no room for them", r.Meta.Freelist, count)
	}
	for i := range count {
		page := native.Uint64(list[8*i:])
		if err := r.inUse(page); err != nil {
			return err
		}
		if err := r.markSeen(page, 0); err != nil {
			return err
		}
	}
	return nil
}

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

const (
	pageHeader  = 16 // id, flags, count, overflow
	elementSize = 16

	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketFlag   = 0x01
)

// Entry is an entry of a bucket. Its slices are valid until the function that gets it returns.
type Entry struct {
	Key, Value []byte
	Bucket     bool // the value is a bucket
}

// element is an entry of a page. In a branch it has a child instead of a value.
type element struct {
	Entry
	child uint64
}

// elements visits the entries of a branch or a leaf up to the first damaged one. bbolt writes them one after the other.
func elements(page []byte, isLeaf bool, visit func(element) error) error {
	count := int(native.Uint16(page[10:]))
	end := uint64(pageHeader + count*elementSize)
	if end > uint64(len(page)) {
		return fmt.Errorf("it has %d entries and no room for them", count)
	}
	for i := range count {
		at := pageHeader + i*elementSize
		e, begin, key, value, err := readElement(page[at:at+elementSize], isLeaf)
		if err != nil {
			return fmt.Errorf("entry %d %w", i, err)
		}
		begin += uint64(at)
		if key == 0 || begin != end || begin+key+value > uint64(len(page)) {
			return fmt.Errorf("entry %d is out of place", i)
		}
		end = begin + key + value
		e.Key, e.Value = page[begin:begin+key], page[begin+key:end]
		if err := visit(e); err != nil {
			return err
		}
	}
	return nil
}

// readElement reads where an entry is, counted from its own position, and the sizes of its key and value.
func readElement(b []byte, isLeaf bool) (e element, begin, key, value uint64, err error) {
	if !isLeaf {
		return element{child: native.Uint64(b[8:])}, uint64(native.Uint32(b)), uint64(native.Uint32(b[4:])), 0, nil
	}
	flags := native.Uint32(b)
	if flags > bucketFlag {
		err = fmt.Errorf("has the flags %#x", flags)
	}
	e.Bucket = flags == bucketFlag
	return e, uint64(native.Uint32(b[4:])), uint64(native.Uint32(b[8:])), uint64(native.Uint32(b[12:])), err
}

// orderedElements is elements for a page of a tree. The first key must equal low, unless that is nil, and all must be
// below high, unless that is nil: bbolt looks keys up by these bounds, and finds the entry of the page above by the
// first key of a page.
func orderedElements(page []byte, isLeaf bool, low, high []byte, visit func(element) error) error {
	i, last := 0, low
	return elements(page, isLeaf, func(e element) error {
		order := bytes.Compare(last, e.Key)
		if i > 0 && order >= 0 || i == 0 && low != nil && order != 0 || high != nil && bytes.Compare(e.Key, high) >= 0 {
			return fmt.Errorf("entry %d is out of order", i)
		}
		i, last = i+1, e.Key
		return visit(e)
	})
}

package boltfile

import (
	"errors"
	"hash/fnv"
	"io"
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

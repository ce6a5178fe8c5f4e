package filequeue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// This file reads bbolt's format without bbolt, which trusts its pages: with a damaged one it
// reads outside its memory or loops, in its own goroutine, where a panic cannot be recovered.
// So every bound is checked here first, and bbolt gets only sound files. The format is
// bbolt's version 2, in native byte order.
const (
	pageHeader   = 16
	elementSize  = 16
	metaSize     = 64
	metaMagic    = 0xED0CDAED
	metaVersion  = 2
	branchPage   = 0x01
	leafPage     = 0x02
	bucketFlag   = 0x01
	bucketHeader = 16
	noFreelist   = 1<<64 - 1

	maxDepth    = 32      // of a tree: far more than any file needs
	maxPageSize = 1 << 16 // of any machine
	maxPage     = 8 << 20 // with overflow
)

// meta is the content of a meta page: the root of one commit. Commits alternate between two
// meta pages.
type meta struct {
	pageSize uint32
	root     uint64 // page of the root bucket
	high     uint64 // pages at and above it were never used
	free     uint64 // page of the freelist, or noFreelist
	commit   uint64
	slot     uint64 // 0 for the first, 1 for the second
}

func readMeta(b []byte) (meta, bool) {
	n := binary.NativeEndian
	if len(b) < pageHeader+metaSize {
		return meta{}, false
	}
	b = b[pageHeader:]
	h := fnv.New64a()
	h.Write(b[:metaSize-8])
	m := meta{pageSize: n.Uint32(b[8:]), root: n.Uint64(b[16:]), free: n.Uint64(b[32:]), high: n.Uint64(b[40:]), commit: n.Uint64(b[48:])}
	ok := n.Uint32(b) == metaMagic && n.Uint32(b[4:]) == metaVersion && n.Uint64(b[56:]) == h.Sum64() &&
		m.pageSize >= 512 && m.pageSize <= maxPageSize && m.pageSize&(m.pageSize-1) == 0
	return m, ok
}

// inspector reads a file page by page.
type inspector struct {
	file     io.ReaderAt
	size     int64
	meta     meta
	previous meta     // the commit before; zero if it cannot be read
	seen     []uint64 // a bit for every page
	used     uint64   // number of pages seen
	buf      [maxDepth + 1][]byte

	// damaged is called for every damaged page.
	damaged func(page uint64, why error)
}

// errNoMeta means that neither meta page is valid.
var errNoMeta = errors.New("neither of its two meta pages can be read")

// inspect finds the newest commit of the file. If whole is false, one of the meta pages is
// damaged, so the newest commit may have been torn.
func inspect(file io.ReaderAt, size int64) (in *inspector, whole bool, err error) {
	m, last, err := readMetas(file)
	if err != nil {
		return nil, false, err
	}
	pages := uint64(size) / uint64(m.pageSize)
	if m.high > pages && m.high > 1<<40 { // impossible, because the meta page has a checksum
		return nil, false, errNoMeta
	}
	return &inspector{file: file, size: size, meta: m, previous: last, seen: make([]uint64, pages/64+1)}, last.pageSize != 0, nil
}

// fallBack goes back to the commit before, if it can be read.
func (in *inspector) fallBack() bool {
	if in.previous.pageSize == 0 {
		return false
	}
	in.meta, in.previous = in.previous, meta{}
	clear(in.seen)
	in.used = 0
	return true
}

// readMetas returns the meta page of the newest commit and the other one, which is zero if
// it is damaged. The second page is at the page size, which only the first one knows: if
// that is damaged, all sizes are tried.
func readMetas(file io.ReaderAt) (newest, last meta, err error) {
	read := func(at int64) meta {
		var b [pageHeader + metaSize]byte
		if _, err := file.ReadAt(b[:], at); err != nil {
			return meta{}
		}
		m, ok := readMeta(b[:])
		if !ok || at != 0 && int64(m.pageSize) != at {
			return meta{}
		}
		m.slot = uint64(min(at, 1))
		return m
	}
	newest = read(0)
	for at := int64(512); at <= maxPageSize && last.pageSize == 0; at *= 2 {
		if newest.pageSize == 0 || at == int64(newest.pageSize) {
			last = read(at)
		}
	}
	if last.commit > newest.commit || newest.pageSize == 0 {
		newest, last = last, newest
	}
	if newest.pageSize == 0 {
		return meta{}, meta{}, errNoMeta
	}
	return newest, last, nil
}

// consecutive reports whether two meta pages are those of a commit and the one before.
func consecutive(newest, last meta) bool {
	misplaced := newest.commit%2 != newest.slot || last.pageSize != 0 && last.commit%2 != last.slot
	return !misplaced && (last.pageSize == 0 || newest.commit == last.commit+1)
}

// markSeen marks a page and its overflow as seen. It returns false if one of them was seen
// before.
func (in *inspector) markSeen(page, overflow uint64) bool {
	for p := page; p <= page+overflow; p++ {
		if in.seen[p/64]&(1<<(p%64)) != 0 {
			return false
		}
	}
	for p := page; p <= page+overflow; p++ {
		in.seen[p/64] |= 1 << (p % 64)
	}
	in.used += overflow + 1
	return true
}

// read returns a page with its overflow, valid until the next read at the same depth.
func (in *inspector) read(page uint64, depth int) ([]byte, error) {
	size := uint64(in.meta.pageSize)
	if page < 2 || page >= in.meta.high {
		return nil, fmt.Errorf("page %d is not among the %d pages in use", page, in.meta.high)
	}
	if (page+1)*size > uint64(in.size) {
		return nil, fmt.Errorf("page %d is beyond the end of the file", page)
	}
	b, err := in.readAt(page, size, depth)
	if err != nil {
		return nil, err
	}
	n := binary.NativeEndian
	if id := n.Uint64(b); id != page {
		return nil, fmt.Errorf("page %d has id %d", page, id)
	}
	overflow := uint64(n.Uint32(b[12:]))
	if overflow > 0 {
		if (overflow+1)*size > maxPage || (page+overflow+1)*size > uint64(in.size) || page+overflow >= in.meta.high {
			return nil, fmt.Errorf("page %d has an invalid overflow of %d pages", page, overflow)
		}
		if b, err = in.readAt(page, (overflow+1)*size, depth); err != nil {
			return nil, err
		}
	}
	if !in.markSeen(page, overflow) {
		return nil, fmt.Errorf("page %d is referenced twice", page)
	}
	return b, nil
}

func (in *inspector) readAt(page, length uint64, depth int) ([]byte, error) {
	if uint64(cap(in.buf[depth])) < length {
		in.buf[depth] = make([]byte, length)
	}
	b := in.buf[depth][:length]
	if _, err := in.file.ReadAt(b, int64(page)*int64(in.meta.pageSize)); err != nil {
		return nil, fmt.Errorf("read page %d: %w", page, err)
	}
	return b, nil
}

// element is an entry of a page. In a branch it has a child instead of a value.
type element struct {
	key, value []byte
	bucket     bool
	child      uint64
}

// elements visits the entries of a page up to the first damaged one: bbolt writes them
// contiguously.
func elements(page []byte, visit func(i int, leaf bool, e element) error) error {
	n := binary.NativeEndian
	flags, count := n.Uint16(page[8:]), int(n.Uint16(page[10:]))
	leaf := flags == leafPage
	if !leaf && flags != branchPage {
		return fmt.Errorf("invalid page flags %#x", flags)
	}
	if !leaf && count == 0 {
		return errors.New("branch page without entries")
	}
	data := uint64(pageHeader + count*elementSize)
	if data > uint64(len(page)) {
		return fmt.Errorf("invalid entry count %d", count)
	}
	for i := range count {
		at := pageHeader + i*elementSize
		header := page[at:]
		var e element
		var begin, key, value uint64
		if leaf {
			e.bucket = n.Uint32(header) == bucketFlag
			begin, key, value = uint64(n.Uint32(header[4:])), uint64(n.Uint32(header[8:])), uint64(n.Uint32(header[12:]))
			if flags := n.Uint32(header); flags > bucketFlag {
				return fmt.Errorf("entry %d: invalid flags %#x", i, flags)
			}
		} else {
			begin, key = uint64(n.Uint32(header)), uint64(n.Uint32(header[4:]))
			e.child = n.Uint64(header[8:])
		}
		begin += uint64(at)
		if key == 0 || begin != data || begin+key+value > uint64(len(page)) {
			return fmt.Errorf("entry %d: invalid position", i)
		}
		data += key + value
		e.key, e.value = page[begin:begin+key], page[begin+key:begin+key+value]
		if err := visit(i, leaf, e); err != nil {
			return err
		}
	}
	return nil
}

package filetable

import (
	"encoding/binary"
	"hash/fnv"
	"io"
)

// This file and pages.go read bbolt's format without bbolt, which trusts its pages: with a damaged one it reads outside
// its memory or loops, in a goroutine of its own, where a panic cannot be recovered. The format is bbolt's version
// 2, in native byte order.
const (
	pageHeader   = 16
	elementSize  = 16
	metaSize     = 64
	metaMagic    = 0xED0CDAED
	metaVersion  = 2
	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketFlag   = 0x01
	bucketHeader = 16
	noFreelist   = 1<<64 - 1

	minPageSize = 1 << 9
	maxPageSize = 1 << 16 // of any machine
)

var native = binary.NativeEndian

// meta is the content of a meta page: the root of one commit. Commits alternate between two meta pages.
type meta struct {
	pageSize uint32
	root     uint64 // page of the root bucket
	free     uint64 // page of the list of free pages, or noFreelist
	high     uint64 // pages at and above it were never used
	commit   uint64
}

// readMeta returns the meta page of the newest commit. The second page is at the page size, which only the first
// one knows: if that is damaged, all sizes are tried.
func readMeta(f io.ReaderAt) (newest meta, err error) {
	first, ok := readMetaAt(f, 0)
	newest = first
	for at := int64(minPageSize); at <= maxPageSize; at *= 2 {
		if second, is := readMetaAt(f, at); is && (!ok || first.pageSize == second.pageSize) && int64(second.pageSize) == at {
			if !ok || second.commit > first.commit {
				newest, ok = second, true
			}
			break
		}
	}
	if !ok {
		return meta{}, corrupt("the file is not one of tables, or its beginning is damaged")
	}
	return newest, nil
}

func readMetaAt(f io.ReaderAt, at int64) (meta, bool) {
	var page [pageHeader + metaSize]byte
	if _, err := f.ReadAt(page[:], at); err != nil {
		return meta{}, false
	}
	b := page[pageHeader:]
	h := fnv.New64a()
	h.Write(b[:metaSize-8])
	m := meta{pageSize: native.Uint32(b[8:]), root: native.Uint64(b[16:]), free: native.Uint64(b[32:]), high: native.Uint64(b[40:]), commit: native.Uint64(b[48:])}
	sound := native.Uint32(b) == metaMagic && native.Uint32(b[4:]) == metaVersion && native.Uint64(b[56:]) == h.Sum64() &&
		m.pageSize >= minPageSize && m.pageSize <= maxPageSize && m.pageSize&(m.pageSize-1) == 0
	return m, sound
}

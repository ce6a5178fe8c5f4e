package boltfile

import (
	"bytes"
	"hash/fnv"
	"slices"
	"testing"
)

// imagePageSize is smaller than that of any machine, so that tests can list all bytes.
const imagePageSize = 512

// image is a file of bbolt, built without bbolt, so that each field can be wrong:
//
//	page 2: the root: the bucket "small" within it, the bucket "tree" on page 3
//	page 3: a branch to the pages 4, 5 and 7
//	page 4: a leaf with the keys a and b
//	page 5: a leaf with the keys d and e, which page 6 continues
//	page 7: a leaf with the key g
//	page 8: a free leaf with the key deleted
//	page 9: a list of free pages: 8
type image []byte

func newImage() image {
	m := make(image, 10*imagePageSize)
	small := append(words(0, 0), page(0, leafPage, entry{key: "k", value: []byte("within")})...) // root page, sequence
	copy(m.page(2), page(2, leafPage, entry{flags: bucketFlag, key: "small", value: small}, entry{flags: bucketFlag, key: "tree", value: words(3, 0)}))
	copy(m.page(3), page(3, branchPage, entry{key: "a", child: 4}, entry{key: "d", child: 5}, entry{key: "g", child: 7}))
	copy(m.page(4), page(4, leafPage, entry{key: "a", value: []byte("1")}, entry{key: "b"}))
	copy(m.page(5), page(5, leafPage, entry{key: "d", value: []byte("3")}, entry{key: "e", value: make([]byte, 600)}))
	native.PutUint32(m.page(5)[12:], 1)
	copy(m.page(7), page(7, leafPage, entry{key: "g", value: []byte("5")}))
	copy(m.page(8), page(8, leafPage, entry{key: "deleted", value: []byte("0")}, entry{flags: bucketFlag, key: "bucket", value: words(0, 0)}))
	copy(m.page(9), freePages(1, 8))
	m.setMeta(0, Meta{PageSize: imagePageSize, Root: 2, Freelist: 9, High: 10, Commit: 6})
	m.setMeta(1, Meta{PageSize: imagePageSize, Root: 2, Freelist: noFreelist, High: 10, Commit: 5})
	return m
}

// page returns the bytes from a page on, so that it may have overflow.
func (m image) page(n int) []byte { return m[n*imagePageSize:] }

// setMeta writes a meta page with its checksum.
func (m image) setMeta(slot int, meta Meta) {
	b := m.page(slot)[pageHeader:]
	native.PutUint32(b, metaMagic)
	native.PutUint32(b[4:], metaVersion)
	native.PutUint32(b[8:], meta.PageSize)
	copy(b[16:], words(meta.Root, 0, meta.Freelist, meta.High, meta.Commit))
	m.sumMeta(slot)
}

// sumMeta writes the checksum of a meta page.
func (m image) sumMeta(slot int) {
	b := m.page(slot)[pageHeader:]
	h := fnv.New64a()
	h.Write(b[:metaSize-8])
	native.PutUint64(b[56:], h.Sum64())
}

// reader returns a reader of the image.
func (m image) reader(t *testing.T) *Reader {
	t.Helper()
	r, err := NewReader(bytes.NewReader(m), int64(len(m)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

type entry struct {
	flags uint32
	key   string
	value []byte
	child uint64 // in a branch
}

// page returns a page as bbolt writes it, without overflow.
func page(id uint64, flags uint16, entries ...entry) []byte {
	b := words(id, 0)
	native.PutUint16(b[8:], flags)
	native.PutUint16(b[10:], uint16(len(entries)))
	end := pageHeader + len(entries)*elementSize
	for i, e := range entries {
		header, begin := make([]byte, elementSize), uint32(end-pageHeader-i*elementSize)
		if flags == branchPage {
			native.PutUint32(header, begin)
			native.PutUint32(header[4:], uint32(len(e.key)))
			native.PutUint64(header[8:], e.child)
		} else {
			native.PutUint32(header, e.flags)
			native.PutUint32(header[4:], begin)
			native.PutUint32(header[8:], uint32(len(e.key)))
			native.PutUint32(header[12:], uint32(len(e.value)))
		}
		b = append(b, header...)
		end += len(e.key) + len(e.value)
	}
	for _, e := range entries {
		b = append(append(b, e.key...), e.value...)
	}
	return b
}

func words(all ...uint64) (b []byte) {
	for _, n := range all {
		b = native.AppendUint64(b, n)
	}
	return b
}

// found is what a walk of a whole file found.
type found struct {
	keys   []string // after the bucket's name
	damage []string
}

// walkAll walks all buckets, on past damage.
func walkAll(r *Reader) (f found) {
	damaged := func(why error) error { f.damage = append(f.damage, why.Error()); return nil }
	if err := r.CheckFreelist(); err != nil {
		_ = damaged(err)
	}
	buckets, err := r.Buckets()
	if err != nil {
		_ = damaged(err)
	}
	for _, b := range buckets {
		visit := func(e Entry) error { f.keys = append(f.keys, string(b.Name)+" "+string(e.Key)); return nil }
		if err := r.Walk(b, visit, damaged); err != nil {
			_ = damaged(err)
		}
	}
	return f
}

// without returns what a sound image has, but for some keys.
func without(keys ...string) []string {
	all := []string{"small k", "tree a", "tree b", "tree d", "tree e", "tree g"}
	return slices.DeleteFunc(all, func(key string) bool { return slices.Contains(keys, key) })
}

package filetable

import (
	"fmt"
	"os"
)

// reserveSize is how much of the file, in bytes, is kept free for changes that need no more space than they free, such as
// deletions: their commit has to write before it frees anything. Two of the largest entities fit, which share a
// page of the tree.
const reserveSize = 4 << 20

// reserve is the end of the file, behind all pages that were ever used. The disk has allocated it, so that commits
// do not fail half-way because the disk is full.
type reserve struct {
	file      *os.File
	pageSize  int
	allocated int64 // the file is allocated up to here
}

// ensure allocates what a commit needs besides the reserve, in bytes; high is the end of the pages in use. It
// returns why there is not enough.
func (r *reserve) ensure(high, need int64) error {
	r.allocated = max(r.allocated, high) // what bbolt has written
	want := high + need + reserveSize
	if r.allocated >= want {
		return nil
	}
	ahead := min(max(want/16, 1<<20), 64<<20) // so that few commits have to
	err := r.allocate(want + ahead)
	if err != nil {
		err = r.allocate(want)
	}
	return err
}

// allocate keeps what it got before an error, so that the next try does not write it again.
func (r *reserve) allocate(to int64) (err error) {
	if r.allocated, err = allocate(r.file, r.allocated, to); err != nil {
		return err
	}
	return r.file.Sync()
}

// need returns how much a commit of these requests may write, in bytes: each record twice, because a page is split
// in two, and for each change the pages from its leaf to the root. It is an estimate: the other entities of a page are
// written too.
func (r *reserve) need(batch []*request) (bytes int64) {
	pages := 16
	for _, one := range batch {
		bytes += 2 * int64(one.size)
		pages += 2 * len(one.changes)
	}
	return bytes + int64(pages*r.pageSize)
}

// smallGrowth is by how much, in bytes, a request may make its entities grow and still use the reserve, so that
// marks can be set before a deletion.
const smallGrowth = 512

// filling is what fill writes. Not zeros: some file systems store them without allocating space.
var filling = func() []byte {
	b := make([]byte, 64<<10)
	for i := range b {
		b[i] = byte(i*i>>3) | 1
	}
	return b
}()

// fill allocates a part of a file by writing it, and returns up to where it has.
func fill(f *os.File, from, to int64) (filled int64, err error) {
	for from < to {
		n, err := f.WriteAt(filling[:min(int64(len(filling)), to-from)], from)
		if from += int64(n); err != nil {
			return from, fmt.Errorf("allocate space: %w", err)
		}
	}
	return to, nil
}

package boltfile

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// ErrTooMany means that a commit changed more than a caller of [Changed] wants to know.
var ErrTooMany = errors.New("the commit changed too many pages")

// ReadMetas returns the newest commit of a file and the one before, which is zero if it cannot be read.
func ReadMetas(file io.ReaderAt) (newest, previous Meta, err error) { return readMetas(file) }

// MetaAt returns the offset of a meta page, whose slot is 0 or 1, in the file of a commit.
func (m Meta) MetaAt(slot uint64) int64 { return int64(slot) * int64(m.PageSize) }

// Next returns the commit that follows m, and false if the file does not have it.
func (m Meta) Next(file io.ReaderAt) (next Meta, ok bool) {
	next = readMeta(file, m.MetaAt(1-m.Slot))
	return next, next.PageSize == m.PageSize && next.Commit == m.Commit+1
}

// Changed visits the pages of a commit that the commit before does not have, with their overflow, and may visit some
// that both have. The bytes are valid until visit returns. Both commits must be sound. The error is [ErrTooMany] for more
// than limit pages, or more than maxPage bytes.
//
// bbolt never writes to a page that the newest commit uses. So a page that the commit before leads to was not changed,
// and neither was anything below it: only pages that one of the two commits does not have are read.
func Changed(file io.ReaderAt, commit, before Meta, limit int, visit func(page uint64, b []byte)) error {
	old := []uint64{before.Root} // in order; the commit before leads to them
	level, oldLevel := []uint64{commit.Root}, old
	var buf []byte
	count, size, read := 0, 0, 0
	for {
		var below, oldBelow []uint64
		for _, page := range level {
			if isIn(page, old) {
				continue
			}
			if count++; count > limit {
				return ErrTooMany
			}
			b, err := ReadPage(file, commit, page, buf)
			if err == nil {
				below, err = appendChildren(below, b)
			}
			if err != nil {
				return err
			}
			if size += len(b); size > maxPage {
				return ErrTooMany
			}
			visit(page, b)
			buf = b
		}
		if len(below) == 0 {
			return nil
		}
		slices.Sort(level)
		for _, page := range oldLevel {
			if isIn(page, level) { // both have it
				continue
			}
			if read++; read > 2*limit {
				return ErrTooMany
			}
			b, err := ReadPage(file, before, page, buf)
			if err == nil {
				oldBelow, err = appendChildren(oldBelow, b)
			}
			if err != nil {
				return err
			}
			buf = b
		}
		old = append(slices.Clone(oldBelow), old...)
		slices.Sort(old)
		level, oldLevel = below, oldBelow
	}
}

func isIn(page uint64, sorted []uint64) bool {
	_, is := slices.BinarySearch(sorted, page)
	return is
}

// ReadPage reads a page of a commit with its overflow, into buf if it has room.
func ReadPage(file io.ReaderAt, commit Meta, page uint64, buf []byte) ([]byte, error) {
	if page < 2 || page >= commit.High {
		return nil, fmt.Errorf("page %d is not among the %d pages in use", page, commit.High)
	}
	at, size := int64(page)*int64(commit.PageSize), uint64(commit.PageSize)
	b := slices.Grow(buf[:0], int(size))[:size]
	if _, err := file.ReadAt(b, at); err != nil {
		return nil, fmt.Errorf("read page %d: %w", page, err)
	}
	if id := native.Uint64(b); id != page {
		return nil, fmt.Errorf("page %d has id %d", page, id)
	}
	overflow := uint64(native.Uint32(b[12:]))
	if overflow == 0 {
		return b, nil
	}
	size *= overflow + 1
	if size > maxPage || page+overflow >= commit.High {
		return nil, fmt.Errorf("page %d has an invalid overflow of %d pages", page, overflow)
	}
	b = slices.Grow(b[:0], int(size))[:size]
	if _, err := file.ReadAt(b, at); err != nil {
		return nil, fmt.Errorf("read page %d: %w", page, err)
	}
	return b, nil
}

// appendChildren appends the pages that a page leads to: those of a branch, and the roots of buckets.
func appendChildren(to []uint64, page []byte) ([]uint64, error) {
	flags := native.Uint16(page[8:])
	if flags != branchPage && flags != leafPage {
		return nil, fmt.Errorf("page %d has the flags %#x", native.Uint64(page), flags)
	}
	err := elements(page, flags == leafPage, func(e element) error {
		switch {
		case flags == branchPage:
			to = append(to, e.child)
		case e.Bucket && len(e.Value) >= bucketHeader && native.Uint64(e.Value) != 0:
			to = append(to, native.Uint64(e.Value))
		}
		return nil
	})
	return to, err
}

package boltfile

import (
	"errors"
	"fmt"
	"io"
)

// ErrTooMany means that a commit changed more than a caller of [Changed] wants to know.
var ErrTooMany = errors.New("the commit changed too many pages")

// ReadMetas returns the newest commit of a file and the one before, which is zero if it cannot be read.
func ReadMetas(file io.ReaderAt) (newest, previous Meta, err error) { return readMetas(file) }

// Changed returns the pages of a commit that the commit before does not have, and may return some that both have. It
// reads only pages that one of the two does not have. Both commits must be sound. The error is [ErrTooMany] for more than
// limit pages, or more than maxPage bytes with their overflow.
//
// bbolt never writes to a page that the newest commit uses. So a page that the commit before leads to was not changed.
func Changed(file io.ReaderAt, commit, before Meta, limit int) (pages []uint64, err error) {
	old := map[uint64]bool{before.Root: true} // the commit before leads to them
	level, oldLevel := []uint64{commit.Root}, []uint64{before.Root}
	size, read := 0, 0
	for len(level) > 0 {
		var below, oldBelow []uint64
		now := map[uint64]bool{} // on this level of the commit
		for _, page := range level {
			if now[page] = true; old[page] {
				continue
			}
			if pages = append(pages, page); len(pages) > limit {
				return nil, ErrTooMany
			}
			b, err := ReadPage(file, commit, page)
			if err == nil {
				below, err = appendChildren(below, b)
			}
			if err != nil {
				return nil, err
			}
			if size += len(b); size > maxPage {
				return nil, ErrTooMany
			}
		}
		for _, page := range oldLevel {
			if now[page] {
				continue
			}
			if read++; read > 2*limit {
				return nil, ErrTooMany
			}
			b, err := ReadPage(file, before, page)
			if err == nil {
				oldBelow, err = appendChildren(oldBelow, b)
			}
			if err != nil {
				return nil, err
			}
		}
		for _, page := range oldBelow {
			old[page] = true
		}
		level, oldLevel = below, oldBelow
	}
	return pages, nil
}

// ReadPage reads a page of a commit with its overflow.
func ReadPage(file io.ReaderAt, commit Meta, page uint64) ([]byte, error) {
	if page < 2 || page >= commit.High {
		return nil, fmt.Errorf("page %d is not among the %d pages in use", page, commit.High)
	}
	at, b := int64(page)*int64(commit.PageSize), make([]byte, commit.PageSize)
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
	if (overflow+1)*uint64(commit.PageSize) > maxPage || page+overflow >= commit.High {
		return nil, fmt.Errorf("page %d has an invalid overflow of %d pages", page, overflow)
	}
	b = make([]byte, (overflow+1)*uint64(commit.PageSize))
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

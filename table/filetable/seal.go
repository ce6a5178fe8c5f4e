package filetable

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/millrace/millrace/internal/boltfile"
)

// A seal proves that a commit is complete, although its pages and its root may reach the disk in any order: one wait for
// the disk is enough then. It lies behind the root in the meta page, where bbolt writes zeros, all numbers big-endian:
//
//	8 bytes   sealMagic
//	2 bytes   number of pages that the commit has changed, which follow with 8 bytes each
//	32 bytes  SHA-256 of the root, of the seal up to here, and of these pages
//
// A commit that is known to be on disk has a seal of no pages. The last one of a closed file has a seal with
// closedPages as the number, and no pages: a commit that another tool of bbolt makes after it needs no seal.
const (
	sealMagic = "seal of\x01"
	sealAt    = 128 // in a meta page
	rootSize  = 80  // of a meta page, with its header
	sealPages = 256 // at most, so that the seal fits into a meta page of 4 KiB
	sealSize  = 10 + 8*sealPages + sha256.Size

	closedPages = 1<<16 - 1
)

// newSeal returns the seal of a commit that has changed some pages; n is their number, or closedPages.
func newSeal(file io.ReaderAt, m boltfile.Meta, n int, pages []uint64) ([]byte, error) {
	seal := binary.BigEndian.AppendUint16([]byte(sealMagic), uint16(n))
	h := sha256.New()
	root := make([]byte, rootSize)
	if _, err := file.ReadAt(root, metaAt(m)); err != nil {
		return nil, err
	}
	h.Write(root)
	for _, p := range pages {
		seal = binary.BigEndian.AppendUint64(seal, p)
	}
	h.Write(seal)
	for _, p := range pages {
		b, err := boltfile.ReadPage(file, m, p)
		if err != nil {
			return nil, err
		}
		h.Write(b)
	}
	return h.Sum(seal), nil
}

func metaAt(m boltfile.Meta) int64 { return int64(m.Slot) * int64(m.PageSize) }

// readSeal returns the seal of a commit, or nil if it has none: it was made before files had seals, or was interrupted.
func readSeal(file io.ReaderAt, m boltfile.Meta) ([]byte, error) {
	seal := make([]byte, min(sealSize, int(m.PageSize)-sealAt))
	if _, err := file.ReadAt(seal, metaAt(m)+sealAt); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(seal, []byte(sealMagic)) {
		return nil, nil
	}
	return seal, nil
}

// pagesOf returns the number that a seal begins with.
func pagesOf(seal []byte) int { return int(binary.BigEndian.Uint16(seal[len(sealMagic):])) }

// sealedPages returns the pages that a seal lists. It fails if the list is longer than the seal can be.
func sealedPages(seal []byte) (pages []uint64, ok bool) {
	n := pagesOf(seal)
	if n == closedPages {
		return nil, true
	}
	if 10+8*n+sha256.Size > len(seal) {
		return nil, false
	}
	for i := range n {
		pages = append(pages, binary.BigEndian.Uint64(seal[10+8*i:]))
	}
	return pages, true
}

// complete reports whether the seal of a commit is right.
func complete(file io.ReaderAt, m boltfile.Meta, seal []byte) bool {
	pages, ok := sealedPages(seal)
	if !ok {
		return false
	}
	want, err := newSeal(file, m, pagesOf(seal), pages)
	return err == nil && bytes.HasPrefix(seal, want)
}

// interrupted reports whether the newest commit of a file is not complete, so that the one before holds. A commit
// without a seal is complete if the one before has none either, or has that of a closed file.
func interrupted(file io.ReaderAt, newest, before boltfile.Meta) (bool, error) {
	seal, err := readSeal(file, newest)
	if err != nil {
		return false, err
	}
	if seal != nil {
		return !complete(file, newest, seal), nil
	}
	if before.PageSize == 0 {
		return false, nil
	}
	seal, err = readSeal(file, before)
	return seal != nil && pagesOf(seal) != closedPages, err
}

// seal makes the newest commit durable, and waits for the disk once, or twice if it has changed many pages.
func (db *DB) seal() error {
	newest, before, err := boltfile.ReadMetas(db.file)
	if err != nil {
		return err
	}
	pages, err := boltfile.Changed(db.file, newest, before, min(sealPages, (int(newest.PageSize)-sealAt-10-sha256.Size)/8))
	if errors.Is(err, boltfile.ErrTooMany) {
		if err := db.sync(); err != nil {
			return err
		}
		return db.writeSeal(newest, 0, nil)
	}
	if err != nil {
		return err
	}
	return db.writeSeal(newest, len(pages), pages)
}

// sealNewest makes the newest commit durable, however it was made, and seals it as one of n pages: none, or closedPages.
// The pages of its seal are written again: if an earlier process failed to wait for them, the system may keep them in
// memory and not write them any more.
func (db *DB) sealNewest(n int) error {
	newest, _, err := boltfile.ReadMetas(db.file)
	if err != nil {
		return err
	}
	seal, err := readSeal(db.file, newest)
	if err != nil {
		return err
	}
	if seal != nil {
		pages, _ := sealedPages(seal)
		for _, p := range pages {
			b, err := boltfile.ReadPage(db.file, newest, p)
			if err == nil {
				_, err = db.file.WriteAt(b, int64(p)*int64(newest.PageSize))
			}
			if err != nil {
				return err
			}
		}
	}
	if err := db.sync(); err != nil {
		return err
	}
	return db.writeSeal(newest, n, nil)
}

func (db *DB) writeSeal(m boltfile.Meta, n int, pages []uint64) error {
	seal, err := newSeal(db.file, m, n, pages)
	if err != nil {
		return err
	}
	if _, err := db.file.WriteAt(seal, metaAt(m)+sealAt); err != nil {
		return fmt.Errorf("seal a commit: %w", err)
	}
	return db.sync()
}

// discard makes an interrupted commit unreadable, so that bbolt opens the one before.
func discard(f interface {
	io.WriterAt
	Sync() error
}, m boltfile.Meta) error {
	if _, err := f.WriteAt(make([]byte, m.PageSize), metaAt(m)); err != nil {
		return fmt.Errorf("discard an interrupted commit: %w", err)
	}
	return f.Sync()
}

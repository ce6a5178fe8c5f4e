package filetable

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/internal/boltfile"
)

// A seal proves that a commit is whole, although its pages and its root may reach the disk in any order: one wait for
// the disk is enough then. It lies behind the root in the meta page, where bbolt writes zeros. All numbers are
// big-endian:
//
//	8 bytes   sealMagic
//	2 bytes   number of pages that the commit has changed, which follow with 8 bytes each
//	32 bytes  SHA-256 of the root, of these pages, and of the seal up to here
//
// A seal of no pages means that the pages were on disk before it was written.
//
// A mark says that a commit is on disk. It lies in the meta page of the commit before, which the next commit writes, so
// that it costs no wait: it is written after the wait of its commit, and reaches the disk when the system writes it, with
// the next commit, or with Close. It tells damage of the newest commit from an interruption:
//
//	8 bytes   markMagic
//	8 bytes   bbolt's number of the commit
//	16 bytes  of the SHA-256 of the mark up to here
const (
	rootSize = 80 // of a meta page, with its header

	markMagic = "mark of\x01"
	markAt    = 88 // in a meta page
	markSize  = 32

	sealMagic = "seal of\x01"
	sealAt    = 128 // in a meta page
	sealHead  = len(sealMagic) + 2
	sealPages = 256 // at most, so that the seal fits into a meta page of 4 KiB
	sealSize  = sealHead + 8*sealPages + sha256.Size
)

// standing is how far a commit has come.
type standing int

const (
	interrupted standing = iota // some of it may be missing
	unsealed                    // bbolt has waited twice for it, before the file had seals
	whole                       // all of it can be read, and may not be on disk yet
	onDisk
)

// standingOf returns the standing of the newest commit that a file has, and whether a newer one was on disk and is lost.
// A commit without a seal is from before the file had seals if the commit before has none either.
func standingOf(file io.ReaderAt, newest boltfile.Meta) (is standing, lost bool, err error) {
	own, err := readMetaPage(file, newest, newest.Slot)
	if err != nil {
		return 0, false, err
	}
	other, err := readMetaPage(file, newest, 1-newest.Slot)
	if err != nil {
		return 0, false, err
	}
	lost = hasMark(own, newest.Commit+1)
	switch {
	case hasMark(other, newest.Commit):
		return onDisk, lost, nil
	case isSealed(own) && isWhole(file, newest, own):
		return whole, lost, nil
	case !isSealed(own) && !isSealed(other):
		return unsealed, lost, nil
	}
	return interrupted, lost, nil
}

func readMetaPage(file io.ReaderAt, m boltfile.Meta, slot uint64) ([]byte, error) {
	page := make([]byte, m.PageSize)
	_, err := file.ReadAt(page, m.MetaAt(slot))
	return page, err
}

func newMark(commit uint64) []byte {
	mark := binary.BigEndian.AppendUint64([]byte(markMagic), commit)
	sum := sha256.Sum256(mark)
	return append(mark, sum[:markSize-len(mark)]...)
}

func hasMark(metaPage []byte, commit uint64) bool {
	return bytes.Equal(metaPage[markAt:markAt+markSize], newMark(commit))
}

func isSealed(metaPage []byte) bool { return bytes.HasPrefix(metaPage[sealAt:], []byte(sealMagic)) }

// isWhole reports whether the seal of a commit is right.
func isWhole(file io.ReaderAt, m boltfile.Meta, metaPage []byte) bool {
	pages, ok := sealedPages(metaPage)
	if !ok {
		return false
	}
	s := newSealer(metaPage)
	var buf []byte
	for _, page := range pages {
		b, err := boltfile.ReadPage(file, m, page, buf)
		if err != nil {
			return false
		}
		s.add(page, b)
		buf = b
	}
	return bytes.HasPrefix(metaPage[sealAt:], s.seal())
}

// sealedPages returns the pages that the seal of a meta page lists, and false if a seal cannot be so long.
func sealedPages(metaPage []byte) (pages []uint64, ok bool) {
	seal := metaPage[sealAt:]
	n := int(binary.BigEndian.Uint16(seal[len(sealMagic):]))
	if n > mostPages(len(metaPage)) {
		return nil, false
	}
	for i := range n {
		pages = append(pages, binary.BigEndian.Uint64(seal[sealHead+8*i:]))
	}
	return pages, true
}

// mostPages returns how many pages a seal can list.
func mostPages(pageSize int) int {
	return min(sealPages, (pageSize-sealAt-sealHead-sha256.Size)/8)
}

// sealer makes the seal of a commit.
type sealer struct {
	sum interface {
		io.Writer
		Sum([]byte) []byte
	}
	pages []uint64
}

func newSealer(metaPage []byte) *sealer {
	s := &sealer{sum: sha256.New()}
	_, _ = s.sum.Write(metaPage[:rootSize]) // a hash cannot fail
	return s
}

func (s *sealer) add(page uint64, b []byte) {
	s.pages = append(s.pages, page)
	_, _ = s.sum.Write(b)
}

func (s *sealer) seal() []byte {
	seal := make([]byte, 0, sealSize)
	seal = binary.BigEndian.AppendUint16(append(seal, sealMagic...), uint16(len(s.pages)))
	for _, page := range s.pages {
		seal = binary.BigEndian.AppendUint64(seal, page)
	}
	_, _ = s.sum.Write(seal)
	return s.sum.Sum(seal)
}

// seal makes the commit that bbolt has just written durable: it waits for the disk once, or twice if the commit has
// changed many pages.
func (db *DB) seal() error {
	next, ok := db.newest.Next(db.file)
	if !ok {
		return errors.New("the commit cannot be read")
	}
	root := make([]byte, rootSize)
	if _, err := db.file.ReadAt(root, next.MetaAt(next.Slot)); err != nil {
		return err
	}
	s := newSealer(root)
	err := boltfile.Changed(db.file, next, db.newest, mostPages(int(next.PageSize)), s.add)
	if errors.Is(err, boltfile.ErrTooMany) {
		s = newSealer(root)
		err = db.sync()
	}
	if err == nil {
		err = db.writeSeal(next, s.seal())
	}
	if err == nil {
		db.newest = next
		db.mark()
	}
	return err
}

func (db *DB) writeSeal(m boltfile.Meta, seal []byte) error {
	if _, err := db.file.WriteAt(seal, m.MetaAt(m.Slot)+sealAt); err != nil {
		return fmt.Errorf("seal a commit: %w", err)
	}
	return db.sync()
}

// mark marks the newest commit, which is on disk. The mark is a help against damage: the commit does not fail without
// it, and if the disk does not take it, it will not take the next commit either.
func (db *DB) mark() {
	_, _ = db.file.WriteAt(newMark(db.newest.Commit), db.newest.MetaAt(1-db.newest.Slot)+markAt)
}

// beginSeals makes the newest commit durable, sealed and marked, after it has brought a file to the present format. From
// then on bbolt waits for nothing, and each commit has a seal. An earlier release, which knows no seals, would take an
// interrupted commit for a complete one: the format keeps it from opening the file.
//
// bbolt waits twice for the commit that changes the format. Until it is sealed, neither it nor the commit before has a
// seal, so that it counts as whole; and if its meta page is lost while the seal is written, the commit before has all
// that was stored.
func (db *DB) beginSeals(from uint64) (err error) {
	if from != format {
		if err := db.changeFormat(); err != nil {
			return fmt.Errorf("bring the file from format %d to %d: %w", from, format, err)
		}
	}
	db.tree.NoSync = true
	if db.newest, _, err = boltfile.ReadMetas(db.file); err != nil {
		return err
	}
	is, _, err := standingOf(db.file, db.newest)
	if err != nil || is == onDisk {
		return err
	}
	if err = db.rewrite(); err == nil {
		db.mark()
	}
	return err
}

// changeFormat brings the file to the present format, with a commit that bbolt waits for twice.
func (db *DB) changeFormat() error {
	return db.tree.Update(func(tx *bolt.Tx) error {
		return tx.Bucket(aboutBucket).Put(formatKey, number(formatKey, format))
	})
}

// rewrite makes the newest commit durable that an earlier process has left. What its seal lists is written again: if that
// process failed to wait for the disk, the system may have the pages in memory only, and not write them any more.
func (db *DB) rewrite() error {
	metaPage, err := readMetaPage(db.file, db.newest, db.newest.Slot)
	if err != nil {
		return err
	}
	if !isSealed(metaPage) {
		if err := db.sync(); err != nil {
			return err
		}
		return db.writeSeal(db.newest, newSealer(metaPage).seal())
	}
	pages, _ := sealedPages(metaPage)
	for _, page := range pages {
		b, err := boltfile.ReadPage(db.file, db.newest, page, nil)
		if err == nil {
			_, err = db.file.WriteAt(b, int64(page)*int64(db.newest.PageSize))
		}
		if err != nil {
			return fmt.Errorf("write the newest commit again: %w", err)
		}
	}
	return db.writeSeal(db.newest, metaPage[sealAt:])
}

// discard makes an interrupted commit unreadable, so that bbolt opens the one before.
func discard(f interface {
	io.WriterAt
	Sync() error
}, m boltfile.Meta) error {
	if _, err := f.WriteAt(make([]byte, m.PageSize), m.MetaAt(m.Slot)); err != nil {
		return fmt.Errorf("discard an interrupted commit: %w", err)
	}
	return f.Sync()
}

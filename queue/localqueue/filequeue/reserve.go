package filequeue

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"syscall"

	"github.com/millrace/millrace/queue/localqueue"
)

// ballastSize, in bytes, is what it can take to fold a log into the tree: two for each of
// its own, because in the worst case a message takes half a page and has one, and two
// pages for each message that it touches.
const reserveSize = 2*logSize + maxTouched*2*4096

// ballast is space on the disk that is kept for deletes: they make room, and yet a
// commit of them has to write first. It is let go when the disk is full. Until it
// is back, as much has to be free inside the file before anything grows.
type reserve struct {
	dir  *directory
	file os.FileInfo // nil when there is none; owned by whoever calls Commit
}

func (b *reserve) held() bool { return b.file != nil }

// find takes what was left of the ballast by who had the directory before.
func (b *reserve) findExisting() {
	if info, err := b.dir.root.Lstat(reserveName); err == nil && info.Size() == reserveSize {
		b.file = info
	}
}

// raise brings the ballast back, if there is space for it.
func (b *reserve) allocate() error {
	if b.held() {
		return nil
	}
	f, err := b.dir.create(reserveName, os.O_WRONLY|os.O_TRUNC)
	if err != nil {
		return err
	}
	// Noise, because some file systems find a place for zeros anywhere.
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{}), reserveSize)
	info, failed := f.Stat()
	if err := errors.Join(err, failed, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, b.dir.root.Remove(reserveName))
	}
	b.file = info
	return nil
}

// drop lets the ballast go and tells whether there was any.
func (b *reserve) release() bool {
	if !b.held() {
		return false
	}
	dropped, err := b.dir.removeOwn(reserveName, b.file)
	b.file = nil
	return dropped && err == nil
}

// grow tells whether any of the changes needs space for good.
func needSpace(changes []localqueue.Change) bool {
	for _, c := range changes {
		switch c.(type) {
		case localqueue.MessageAdded, localqueue.MessageRewritten:
			return true
		}
	}
	return false
}

// roomFor fails when the changes need space for good that the disk did not have
// and the file has not either. What deletes made free is in the log until a checkpoint, so
// there is one before anything is refused; then there is nothing to gain by another, however
// many are refused.
func (s *Store) ensureSpace(changes []localqueue.Change) error {
	if s.reserve.held() || !needSpace(changes) || s.enoughFreePages() {
		return nil
	}
	err := s.reserve.allocate()
	if err == nil {
		return nil
	}
	if len(s.pending.messages) > 0 || s.moreWork {
		if _, failed := s.checkpoint(nil); failed != nil {
			err = errors.Join(err, failed)
		} else if s.enoughFreePages() {
			return nil
		}
	}
	return fmt.Errorf("the disk was full, and still is: %w", err)
}

// roomInside tells whether as much as the ballast is free inside the file, or will be with
// the next commit.
func (s *Store) enoughFreePages() bool {
	stats := s.db.Stats()
	return (stats.FreePageN+stats.PendingPageN)*s.pageSize >= reserveSize
}

// withRoom does something again once the ballast was let go.
func (s *Store) usingReserve(do func() error) error {
	err := do()
	if err != nil && s.broken == nil && s.reserve.release() {
		err = do()
	}
	return err
}

// noRoom tells whether something failed because the disk, or the user's part of it, is full.
func outOfSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

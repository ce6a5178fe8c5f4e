package filequeue

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"

	"github.com/millrace/millrace/internal/openfile"
	"github.com/millrace/millrace/queue/localqueue/storage"
)

// reserveSize, in bytes, is the most that a checkpoint can write: twice the log, because in
// the worst case a message that takes half a page gets a whole one, and two pages for each
// message of the tree that it changes.
const reserveSize = 2*logSize + maxTouched*2*4096

// reserve is disk space kept for deletes: they free space, but their commit has to write
// first. It is released when the disk is full. Until it is allocated again, as much must be
// free inside the file before anything grows.
type reserve struct {
	dir  *directory
	file os.FileInfo // nil if there is none; owned by the caller of Commit
}

func (b *reserve) held() bool { return b.file != nil }

// findExisting finds a reserve that an earlier process left.
func (b *reserve) findExisting() {
	if info, err := b.dir.root.Lstat(reserveName); err == nil && info.Size() == reserveSize {
		b.file = info
	}
}

// allocate makes the reserve, if there is space for it.
func (b *reserve) allocate() error {
	if b.held() {
		return nil
	}
	f, err := b.dir.create(reserveName, os.O_WRONLY|os.O_TRUNC)
	if err != nil {
		return err
	}
	// Random bytes, because some file systems store zeros without allocating space.
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{}), reserveSize)
	info, failed := f.Stat()
	if err := errors.Join(err, failed, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, b.dir.root.Remove(reserveName))
	}
	b.file = info
	return nil
}

// release removes the reserve and reports whether there was one.
func (b *reserve) release() bool {
	if !b.held() {
		return false
	}
	dropped, err := b.dir.removeOwn(reserveName, b.file)
	b.file = nil
	return dropped && err == nil
}

// needSpace reports whether any of the changes needs space permanently.
func needSpace(changes []storage.Change) bool {
	for _, c := range changes {
		switch c.(type) {
		case storage.MessageAdded, storage.MessageRewritten:
			return true
		}
	}
	return false
}

// ensureSpace fails if the changes need space permanently that neither the disk nor the
// file has. Until a checkpoint, the space of deleted messages is not free, so there is one
// before anything is refused; after it the log is empty, and further refusals cost no
// checkpoint.
func (s *Store) ensureSpace(changes []storage.Change) error {
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
	if openfile.OutOfSpace(err) {
		return fmt.Errorf("the disk is full: %w", err)
	}
	return fmt.Errorf("allocate %s, the reserve for deletes: %w", s.dir.named(reserveName), err)
}

// enoughFreePages reports whether as much as the reserve is free inside the file, or will
// be with the next commit.
func (s *Store) enoughFreePages() bool {
	stats := s.db.Stats()
	return (stats.FreePageN+stats.PendingPageN)*s.pageSize >= reserveSize
}

// usingReserve calls do, and calls it again with the reserve released if that failed.
func (s *Store) usingReserve(do func() error) error {
	err := do()
	if err != nil && s.broken == nil && s.reserve.release() {
		err = do()
	}
	return err
}

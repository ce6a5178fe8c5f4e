package filequeue

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"

	"github.com/millrace/millrace/queue/localqueue"
)

// ballastSize, in bytes, is what it can take to fold a log into the tree: two for each of
// its own, because in the worst case a message takes half a page and has one, and two
// pages for each message that it touches.
const ballastSize = 2*logSize + mostTouched*2*4096

// ballast is space on the disk that is kept for deletes: they make room, and yet a
// commit of them has to write first. It is let go when the disk is full. Until it
// is back, as much has to be free inside the file before anything grows.
type ballast struct {
	path  string
	there bool // owned by whoever calls Commit
}

// raise brings the ballast back, if there is space for it.
func (b *ballast) raise() error {
	if info, err := os.Stat(b.path); err == nil && info.Size() == ballastSize {
		b.there = true
	}
	if b.there {
		return nil
	}
	f, err := os.OpenFile(b.path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	// Noise, because some file systems find a place for zeros anywhere.
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{}), ballastSize)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(b.path))
	}
	b.there = true
	return nil
}

// drop lets the ballast go and tells whether there was any.
func (b *ballast) drop() bool {
	dropped := b.there && os.Remove(b.path) == nil
	b.there = false
	return dropped
}

// grow tells whether any of the changes needs space for good.
func grow(changes []localqueue.Change) bool {
	for _, c := range changes {
		switch c.(type) {
		case localqueue.MessageAdded, localqueue.MessageRewritten:
			return true
		}
	}
	return false
}

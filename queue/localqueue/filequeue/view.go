package filequeue

import (
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/queue/localqueue/storage"
)

// View implements [storage.Store].
//
// A text is in the recent texts or in the tree, and a checkpoint may come in between, so
// the tree is opened last. It may then be newer than the view, which does no harm: the
// caller keeps the view's messages from changing until it is open.
func (s *Store) View() (storage.View, error) {
	recent := s.recent.Load()
	v := view{recent: recent, after: recent.newest()}
	var err error
	if v.tree, err = s.db.Begin(false); err != nil {
		return nil, fmt.Errorf("filequeue: %w", err)
	}
	return v, nil
}

// view reads the texts as of a commit.
type view struct {
	recent *recentTexts
	after  uint64
	tree   *bolt.Tx // read-only
}

// Text implements [storage.View].
func (v view) Text(k storage.MessageKey) (text string, err error) {
	if text, is := v.recent.text(k, v.after); is {
		return text, nil
	}
	defer recoverPanic(func(cause error) {
		text, err = "", fmt.Errorf("filequeue: read message %d of queue %d: %w", k.Sequence, k.Queue, cause)
	})()
	key := appendKey(nil, k)
	_, read, err := readBody(key, v.tree.Bucket(bodyBucket).Get(key))
	if err != nil {
		return "", fmt.Errorf("filequeue: message %d of queue %d: %w: %w", k.Sequence, k.Queue, storage.ErrDamaged, err)
	}
	return string(read), nil // a copy, because the record is mapped memory
}

// Close implements [storage.View].
func (v view) Close() { _ = v.tree.Rollback() } // fails only if it is closed already

package filequeue

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/internal/localengine"
)

// store is a directory that an engine keeps its queues in. It is as safe for concurrent use as
// [localengine.Store] requires.
type store struct {
	dir  *directory
	lock *os.File

	maxLogSize int64 // the size limit of a log, in bytes

	db           *bolt.DB
	file         *os.File // of db
	linksCounted bool     // the file system counts the links of a file
	pageSize     int      // of db, in bytes
	found        Found

	snapshot *snapshot // until Load
	recent   atomic.Pointer[recentTexts]

	// The fields below are owned by the caller of Commit.

	reserve      reserve
	digest       digest   // of the records in the tree
	number       uint64   // of the last commit
	time         int64    // of that commit, by the engine's clock
	checkpointed uint64   // the last commit that the tree has
	secret       [32]byte // the salt of the logs
	logs         [2]*wal
	logsReady    bool      // there are logs, and the tree says so; otherwise every commit goes into the tree
	active       int       // index of the log being written
	pending      pending   // what the log has and the tree does not
	moreWork     bool      // there are tombstones
	logBuffer    []byte    // reused buffer
	checkedAt    time.Time // when files were last checked for deletion
	broken       error     // why commits are refused
	panicked     bool      // bbolt panicked and must not be called again
}

var _ localengine.Store = (*store)(nil)

// Found returns what [Open] found.
func (s *store) Found() Found { return s.found }

// path returns the path of the tree, as given to Open.
func (s *store) path() string { return s.dir.named(fileName) }

// Load implements [localengine.Store].
func (s *store) Load() (localengine.Saved, error) {
	if s.snapshot == nil {
		return localengine.Saved{}, errors.New("filequeue: the store was loaded before")
	}
	saved := s.snapshot.saved()
	saved.Time = s.time
	s.snapshot = nil // the engine owns it now
	return saved, nil
}

// Close releases the directory. Everything is then in one file, without logs, unless the
// disk was too full for that. After an error, the logs have what the tree does not.
func (s *store) Close() error {
	checkpointed := s.broken == nil && s.finalCheckpoint() == nil // otherwise the next Open replays the logs
	err := errors.Join(s.broken, s.removeLogs(checkpointed), s.closeFiles(), s.lock.Close(), s.dir.close())
	if err != nil {
		return fmt.Errorf("filequeue: close %s: %w", s.path(), err)
	}
	return nil
}

func (s *store) closeFiles() error {
	err := s.closeTree()
	for _, l := range s.logs {
		if l != nil {
			err = errors.Join(err, l.file.Close())
		}
	}
	return err
}

// View implements [localengine.Store].
//
// A text is in the recent texts or in the tree, and a checkpoint may come in between, so
// the tree is opened last. It may then be newer than the view, which does no harm: the
// caller keeps the view's messages from changing until it is open.
func (s *store) View() (localengine.View, error) {
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

// Text implements [localengine.View].
func (v view) Text(k localengine.MessageKey) (text string, err error) {
	if text, is := v.recent.text(k, v.after); is {
		return text, nil
	}
	defer recoverPanic(func(cause error) {
		text, err = "", fmt.Errorf("filequeue: read message %d of queue %d: %w", k.Sequence, k.Queue, cause)
	})()
	key := appendKey(nil, k)
	_, read, err := readBody(key, v.tree.Bucket(bodyBucket).Get(key))
	if err != nil {
		return "", fmt.Errorf("filequeue: message %d of queue %d: %w: %w", k.Sequence, k.Queue, localengine.ErrDamaged, err)
	}
	return string(read), nil // a copy, because the record is mapped memory
}

// Close implements [localengine.View].
func (v view) Close() error { return v.tree.Rollback() } // fails only if it is closed already

// recentTexts holds the texts of the commits in the log. Nothing is removed from it: an
// open view may still ask for texts that were deleted or replaced. A checkpoint replaces
// it, and it lives as long as the views that use it.
type recentTexts struct {
	mu     sync.RWMutex
	number uint64                                  // guarded by mu; of the newest commit
	texts  map[localengine.MessageKey]*textVersion // guarded by mu
}

// textVersion is a text and those that it replaced. It never changes.
type textVersion struct {
	since uint64 // the number of the commit
	text  string
	older *textVersion
}

func newRecentTexts(number uint64) *recentTexts {
	return &recentTexts{number: number, texts: map[localengine.MessageKey]*textVersion{}}
}

func (r *recentTexts) add(number uint64, changes []localengine.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number = number
	for _, c := range changes {
		switch c := c.(type) {
		case localengine.MessageAdded:
			r.texts[c.MessageKey] = &textVersion{number, c.Text, nil}
		case localengine.MessageRewritten:
			r.texts[c.MessageKey] = &textVersion{number, c.Text, r.texts[c.MessageKey]}
		}
	}
}

func (r *recentTexts) newest() uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.number
}

// text returns the text that a message had after a commit, unless it is in the tree.
func (r *recentTexts) text(k localengine.MessageKey, after uint64) (string, bool) {
	r.mu.RLock()
	t := r.texts[k]
	r.mu.RUnlock()
	for t != nil && t.since > after {
		t = t.older
	}
	if t == nil {
		return "", false
	}
	return t.text, true
}

// pending is the outcome, by message, of the commits since the last checkpoint.
type pending struct {
	messages map[localengine.MessageKey]outcome
	touched  int // outcomes of messages that the tree has
}

// outcome is the newest state of a message.
type outcome struct {
	localengine.MessageState
	text string
	kind byte // as in a log record
}

func newPending() pending { return pending{messages: map[localengine.MessageKey]outcome{}} }

func (p *pending) apply(changes []localengine.Change) {
	for _, c := range changes {
		switch c := c.(type) {
		case localengine.MessageAdded:
			p.put(outcome{c.MessageState, c.Text, recordAdded})
		case localengine.MessageRewritten:
			p.put(outcome{c.MessageState, c.Text, recordRewritten})
		case localengine.MessagesUpdated:
			for _, m := range c {
				p.put(outcome{m, "", recordUpdated})
			}
		case localengine.MessageRemoved:
			p.remove(localengine.MessageKey(c))
		case localengine.MessagesExpired:
			for _, k := range c {
				p.remove(k)
			}
		}
	}
}

func (p *pending) put(o outcome) {
	was, known := p.messages[o.MessageKey]
	switch {
	case !known:
		if o.kind != recordAdded {
			p.touched++
		}
	case o.kind == recordUpdated && was.kind != recordUpdated: // the rest is unchanged
		was.Due, was.Dequeues, was.Receipt = o.Due, o.Dequeues, o.Receipt
		o = was
	case was.kind == recordAdded:
		o.kind = recordAdded
	}
	p.messages[o.MessageKey] = o
}

func (p *pending) remove(k localengine.MessageKey) {
	was, known := p.messages[k]
	switch {
	case known && was.kind == recordAdded: // it never reaches the tree
		delete(p.messages, k)
		return
	case !known:
		p.touched++
	}
	p.messages[k] = outcome{MessageState: localengine.MessageState{MessageKey: k}, kind: recordRemoved}
}

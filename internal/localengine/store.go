package localengine

import (
	"errors"
)

// Store makes the state of an engine durable.
//
// The engine calls Load once, before anything else, and Commit from one goroutine at a
// time. It calls View from any goroutine, at any time between Load and Close, and also while
// a commit is under way.
type Store interface {
	// Load returns the state of the store.
	Load() (Saved, error)

	// Commit makes the changes durable, in their order and atomically. Nil means that they
	// survive a kill and a power cut. An error means that none of them was kept or ever will
	// be, unless it is [ErrUncertain]. If more is true, there is work left over, such as
	// removing the messages of a cleared queue, and a further Commit, even one of no changes,
	// continues it. After Load, the engine commits no changes once, for work that an earlier
	// process left over. The store may keep the changes, but must not modify them.
	Commit(changes []Change) (more bool, err error)

	// View returns the texts as of the last Commit. It is cheap to open and must be closed
	// soon.
	View() (View, error)

	// Close releases the store, once all views are closed. No other call of the store is under
	// way.
	Close() error
}

// View reads texts of messages as of when it was opened, whatever is committed meanwhile.
// It is not safe for concurrent use.
type View interface {
	// Text returns the text of a message, or [ErrDamaged] if it cannot be read any more.
	Text(key MessageKey) (string, error)

	// Close ends the view.
	Close() error
}

// ErrDamaged means that a message was stored and cannot be read any more.
var ErrDamaged = errors.New("damaged on disk")

// ErrUncertain means that the outcome of a commit is unknown, because the disk failed at
// the very end of it. The store refuses further commits: opening it again shows whether the
// commit was kept.
var ErrUncertain = errors.New("the disk failed at the end of a commit")

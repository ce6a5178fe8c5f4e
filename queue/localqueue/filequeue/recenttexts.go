package filequeue

import (
	"sync"

	"github.com/millrace/millrace/queue/localqueue/storage"
)

// recentTexts holds the texts of the commits in the log. Nothing is removed from it: an
// open view may still ask for texts that were deleted or replaced. A checkpoint replaces
// it, and it lives as long as the views that use it.
type recentTexts struct {
	mu     sync.RWMutex
	number uint64                              // guarded by mu; of the newest commit
	texts  map[storage.MessageKey]*textVersion // guarded by mu
}

// textVersion is a text and those that it replaced. It never changes.
type textVersion struct {
	since uint64 // the number of the commit
	text  string
	older *textVersion
}

func newRecentTexts(number uint64) *recentTexts {
	return &recentTexts{number: number, texts: map[storage.MessageKey]*textVersion{}}
}

func (r *recentTexts) add(number uint64, changes []storage.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.number = number
	for _, c := range changes {
		switch c := c.(type) {
		case storage.MessageAdded:
			r.texts[c.MessageKey] = &textVersion{number, c.Text, nil}
		case storage.MessageRewritten:
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
func (r *recentTexts) text(k storage.MessageKey, after uint64) (string, bool) {
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

package dedupe

import (
	"sync"
	"time"
)

// recent remembers the keys that were recorded last, in order.
type recent struct {
	maxKeys   int
	retention time.Duration
	created   time.Time // times are relative to it, which halves their size and hides them from the garbage collector

	mu    sync.Mutex
	at    map[digest]time.Duration // when a key was recorded; guarded by mu
	order []digest                 // the keys of at, oldest first; guarded by mu
}

func newRecent(o Options) *recent {
	return &recent{maxKeys: o.MaxKeys, retention: o.Retention, created: time.Now(), at: make(map[digest]time.Duration)}
}

func (r *recent) has(key digest) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, known := r.at[key]
	return known && !r.outlived(at)
}

// outlived reports whether what was recorded then is no longer remembered.
func (r *recent) outlived(at time.Duration) bool { return time.Since(r.created)-at >= r.retention }

// add remembers the key, and forgets those that are too old or too many. A key that is remembered
// keeps its age.
func (r *recent) add(key digest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.order) > 0 && r.outlived(r.at[r.order[0]]) {
		r.forgetOldest()
	}
	if _, known := r.at[key]; known {
		return
	}
	if len(r.order) >= r.maxKeys {
		r.forgetOldest()
	}
	r.at[key] = time.Since(r.created)
	r.order = append(r.order, key)
}

// forgetOldest forgets the key that was recorded first. Requires mu.
func (r *recent) forgetOldest() {
	delete(r.at, r.order[0])
	r.order = r.order[1:]
}

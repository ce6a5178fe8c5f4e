package listener

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/naming"
)

// logInterval is how long after a log line further lines of its kind are suppressed.
const logInterval = 10 * time.Second

// maxKinds bounds how many kinds of lines are told apart. Further ones share one kind.
const maxKinds = 256

// logLimiter limits how many lines are logged for a flood of errors. Lines are of one kind if
// they have the same message and their error texts differ only in numbers and ids. Suppressed
// lines are counted, and the count is logged later. It is safe for concurrent use.
type logLimiter struct {
	mu    sync.Mutex
	kinds map[string]*kind // by message and fingerprint of the error; guarded by mu
}

// kind is the state of one kind of log line.
type kind struct {
	message    string
	example    string    // the text of the last suppressed error
	next       time.Time // when the next line may be logged
	suppressed int       // lines suppressed since the last one that was logged
}

// allow reports whether a line may be logged now, and how many of its kind were suppressed
// since the last one.
func (t *logLimiter) allow(message, text string) (leftOut int, ok bool) {
	return t.check(message, text, false)
}

// allowAlways is allow for a line that is logged in any case and never counts as suppressed.
func (t *logLimiter) allowAlways(message, text string) (leftOut int, ok bool) {
	return t.check(message, text, true)
}

func (t *logLimiter) check(message, text string, must bool) (leftOut int, ok bool) {
	key := message + ": " + naming.Fingerprint(text)
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	k := t.kind(key, message, now)
	if now.Before(k.next) && !must {
		k.suppressed++
		k.example = text
		return 0, false
	}
	leftOut = k.suppressed
	k.next, k.suppressed = now.Add(logInterval), 0
	return leftOut, true
}

// kind returns the kind of a line, and makes it if it is new. Requires mu.
func (t *logLimiter) kind(key, message string, now time.Time) *kind {
	if k := t.kinds[key]; k != nil {
		return k
	}
	if t.kinds == nil {
		t.kinds = make(map[string]*kind)
	}
	if len(t.kinds) >= maxKinds {
		for old, k := range t.kinds {
			if k.suppressed == 0 && now.After(k.next) {
				delete(t.kinds, old)
			}
		}
	}
	if len(t.kinds) >= maxKinds {
		key, message = "", "errors of many kinds"
		if k := t.kinds[key]; k != nil {
			return k
		}
	}
	k := &kind{message: message}
	t.kinds[key] = k
	return k
}

// suppressed returns the kinds with suppressed lines that were not yet reported, the largest
// counts first, and resets the counts.
func (t *logLimiter) suppressed() []kind {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []kind
	for _, k := range t.kinds {
		if k.suppressed > 0 {
			all = append(all, *k)
			k.suppressed = 0
		}
	}
	slices.SortFunc(all, func(a, b kind) int {
		return cmp.Or(cmp.Compare(b.suppressed, a.suppressed), cmp.Compare(a.message, b.message), cmp.Compare(a.example, b.example))
	})
	return all
}

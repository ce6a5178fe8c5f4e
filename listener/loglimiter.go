package listener

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/fingerprint"
)

// quiet is how long after a line no other that says the same is logged.
const logInterval = 10 * time.Second

// maxKinds bounds how many different lines are told apart. Those beyond share one kind.
const maxKinds = 256

// thinning keeps a flood of errors from being a flood of log lines (V-08). Lines say the
// same if they have the same message and error texts that differ only in numbers and ids.
// What is left out is counted, and the count is logged in the end. It is safe for
// concurrent use.
type logLimiter struct {
	mu    sync.Mutex
	kinds map[string]*kind // by message and fingerprint of the error; guarded by mu
}

// kind is what is known of the lines that say the same.
type kind struct {
	message    string
	example    string    // the text of the last error that was left out
	next       time.Time // when a line may be logged again
	suppressed int       // since the last line
}

// admit tells whether a line may be logged now, and how many like it were left out since
// the last one.
func (t *logLimiter) allow(message, text string) (leftOut int, ok bool) {
	return t.check(message, text, false)
}

// always is admit for a line that is logged in any case, and so never counts as left out.
func (t *logLimiter) allowAlways(message, text string) (leftOut int, ok bool) {
	return t.check(message, text, true)
}

func (t *logLimiter) check(message, text string, must bool) (leftOut int, ok bool) {
	key := message + ": " + fingerprint.Of(text)
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

// kind finds or makes the kind of a line. Requires mu.
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

// rest returns the kinds of which some lines were left out and not counted since, those
// with the most first, and forgets the counts.
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

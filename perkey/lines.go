package perkey

import "time"

// A key has no turns while it is free, but the jobs that were postponed have places in its line until they
// come again. Without it those that come too early would be given the same places once more.
const (
	maxLines   = 1024 // keys whose lines are remembered
	maxLineKey = 256  // bytes of such a key, as many as a producer may set
)

// line is what is remembered of a key that is free.
type line struct {
	end     time.Time
	typical time.Duration
}

// lines are those of keys that are free. They are guarded by Keys.mu. The zero value is ready to use.
type lines struct {
	byKey map[string]line
}

// put remembers the line of a key, if somebody is in it. When there are too many others it takes the place of
// one that has passed, or of any.
func (l *lines) put(key string, t *turns, now time.Time) {
	if !t.lineEnd.After(now) || len(key) > maxLineKey {
		return
	}
	if l.byKey == nil {
		l.byKey = make(map[string]line)
	}
	if len(l.byKey) >= maxLines {
		l.makeRoom(now)
	}
	l.byKey[key] = line{t.lineEnd, t.typical}
}

// makeRoom forgets the lines that have passed, or one if none has.
func (l *lines) makeRoom(now time.Time) {
	for key, one := range l.byKey {
		if !one.end.After(now) {
			delete(l.byKey, key)
		}
	}
	for key := range l.byKey {
		if len(l.byKey) < maxLines {
			break
		}
		delete(l.byKey, key)
	}
}

func (l *lines) take(key string, typical time.Duration, now time.Time) *turns {
	one, found := l.byKey[key]
	if !found {
		return &turns{since: now, typical: typical}
	}
	delete(l.byKey, key)
	return &turns{since: now, typical: one.typical, lineEnd: one.end}
}

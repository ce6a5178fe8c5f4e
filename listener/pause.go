package listener

import (
	"fmt"
	"log/slog"
	"time"
)

// PausedBy says who has paused a listener. The zero value is [NotPaused].
type PausedBy int

// Who pauses.
const (
	NotPaused         PausedBy = 0
	ByProgram         PausedBy = 1                   // [Listener.Pause]
	ByQueue           PausedBy = 2                   // the flag in the metadata of the queue, which millrace pause sets
	ByProgramAndQueue PausedBy = ByProgram | ByQueue // both
)

var pausedByNames = []string{"not paused", "program", "queue metadata", "program and queue metadata"}

// String returns the name.
func (p PausedBy) String() string {
	if p < 0 || int(p) >= len(pausedByNames) {
		return fmt.Sprintf("PausedBy(%d)", int(p))
	}
	return pausedByNames[p]
}

// MarshalText returns the name, for JSON and logs. An unknown value is an error.
func (p PausedBy) MarshalText() ([]byte, error) {
	if p < 0 || int(p) >= len(pausedByNames) {
		return nil, fmt.Errorf("listener: unknown value %v", p)
	}
	return []byte(p.String()), nil
}

// UnmarshalText parses what [PausedBy.MarshalText] returns.
func (p *PausedBy) UnmarshalText(text []byte) error {
	for i, name := range pausedByNames {
		if name == string(text) {
			*p = PausedBy(i)
			return nil
		}
	}
	return fmt.Errorf("listener: unknown value %q of PausedBy", text)
}

// Pause stops fetching: no further dequeue is sent, and nothing else for the sake of fetching. The
// messages of a dequeue in flight are handled, handlers continue, and their leases are renewed.
// Pause does not wait. It may be called at any time: before Run the listener starts paused, after
// the stop nothing happens, and twice is once. It is safe for concurrent use. See
// [Listener.Resume].
//
// A stop and [Listener.Halt] end a paused listener like any other.
func (l *Listener[T]) Pause() { l.setPaused(true) }

// Resume undoes [Listener.Pause], however often that was called: loops poll immediately, except
// those that wait after an error. A listener whose queue is paused too, by the flag in its
// metadata, stays paused until that is removed. Resume may be called at any time and is safe for
// concurrent use.
func (l *Listener[T]) Resume() { l.setPaused(false) }

func (l *Listener[T]) setPaused(on bool) {
	l.mu.Lock()
	s := l.session
	if s == nil && on != l.startsPaused { // else Run tells the owner
		l.startsPaused, l.pausedSince = on, time.Now()
	}
	l.mu.Unlock()
	if s != nil {
		s.hears(event{what: paused, by: ByProgram, on: on})
	}
}

// tellOfPause tells log and observer of a change.
func (s *session) tellOfPause(before, now PausedBy) {
	s.changed()
	if now == NotPaused {
		s.report.info("resumed", slog.String("was_paused_by", before.String()))
	} else {
		s.report.info("paused", slog.String("by", now.String()))
	}
	if f := s.options.Observer.Paused; f != nil {
		f(s.queue.Name(), now)
	}
}

package listener

import (
	"log/slog"
	"time"
)

// PausedBy says who has paused a listener. The zero value is [NotPaused].
type PausedBy string

// Who pauses.
const (
	NotPaused         PausedBy = ""
	ByProgram         PausedBy = "program"                    // [Listener.Pause]
	ByQueue           PausedBy = "queue metadata"             // the flag in the metadata of the queue, which millrace pause sets
	ByProgramAndQueue PausedBy = "program and queue metadata" // both
)

// pauses are the reasons to pause that apply, as bits.
type pauses uint8

const (
	programPauses pauses = 1 << iota
	queuePauses
)

// by returns the name of the reasons.
func (p pauses) by() PausedBy {
	return [...]PausedBy{NotPaused, ByProgram, ByQueue, ByProgramAndQueue}[p]
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
		s.hears(event{what: paused, pause: programPauses, on: on})
	}
}

// tellOfPause tells log and observer of a change.
func (s *session) tellOfPause(before, now pauses) {
	s.changed()
	if now == 0 {
		s.report.info("resumed", slog.String("was_paused_by", string(before.by())))
	} else {
		s.report.info("paused", slog.String("by", string(now.by())))
	}
	if f := s.options.Observer.Paused; f != nil {
		f(s.queue.Name(), now.by())
	}
}

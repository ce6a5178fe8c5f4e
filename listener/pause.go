package listener

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
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
// messages of a dequeue in flight are handled, handlers go on, and their leases are renewed. Pause
// does not wait. It may be called at any time: before Run the listener starts paused, after the
// stop nothing happens, and twice is once. It is safe for concurrent use. See [Listener.Resume].
//
// A stop and [Listener.Halt] end a paused listener like any other.
func (l *Listener[T]) Pause() { l.setPaused(true) }

// Resume undoes [Listener.Pause], however often that was called: loops poll at once, except those
// that wait after an error. A listener whose queue is paused too, by the flag in its metadata, stays
// paused until that is removed. Resume may be called at any time and is safe for concurrent use.
func (l *Listener[T]) Resume() { l.setPaused(false) }

func (l *Listener[T]) setPaused(on bool) {
	if s := l.current(); s != nil && s.looping.Err() != nil {
		return
	}
	l.pauses.set(ByProgram, on)
	if s := l.current(); s != nil { // else Run announces it
		s.announcePause()
	}
}

// pauses says whether loops may fetch, and what is known of the flag of the queue.
type pauses struct {
	mu        sync.Mutex
	by        PausedBy      // guarded by mu
	since     time.Time     // when it was paused; guarded by mu
	announced PausedBy      // what log and observer were told; guarded by mu
	telling   bool          // a goroutine tells them, and tells them of later changes too; guarded by mu
	ended     func()        // called when a pause ends, with mu held; nil before Run; guarded by mu
	changed   chan struct{} // closed and replaced when waiting loops must look again; nil if none waits; guarded by mu
	flag      flagReadings  // guarded by mu
}

func (p *pauses) set(reason PausedBy, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setLocked(reason, on)
}

// setLocked is set with mu held.
func (p *pauses) setLocked(reason PausedBy, on bool) {
	by := p.by &^ reason
	if on {
		by |= reason
	}
	if by == p.by {
		return
	}
	if p.by == NotPaused {
		p.since = time.Now()
	}
	p.by = by
	if by == NotPaused && p.ended != nil {
		p.ended() // before any loop goes on, so that its poll is the one that this calls for
	}
	p.notifyLocked()
}

// notify makes the loops that wait look again.
func (p *pauses) notify() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notifyLocked()
}

// notifyLocked is notify with mu held.
func (p *pauses) notifyLocked() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// changeLocked returns a channel that is closed at the next change. Requires mu.
func (p *pauses) changeLocked() <-chan struct{} {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// paused reports whether nothing may be fetched.
func (p *pauses) paused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.by != NotPaused
}

// forFleet reports whether the queue is paused, and so all instances.
func (p *pauses) forFleet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.by&ByQueue != 0
}

// wait returns a channel that is closed when the pause may be over, or nil if there is none.
func (p *pauses) wait() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by == NotPaused {
		return nil
	}
	return p.changeLocked()
}

// fill sets the fields of a state that are known here.
func (p *pauses) fill(s *State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.PausedBy = p.by; p.by != NotPaused {
		s.PausedSince = p.since
	}
}

// announcement returns what has changed since the last call. One goroutine at a time gets that, and must
// call again, as the teller, until nothing has.
func (p *pauses) announcement(teller bool) (before, now PausedBy, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.telling && !teller {
		return p.announced, p.announced, false
	}
	before, now, p.announced = p.announced, p.by, p.by
	p.telling = before != now
	return before, now, p.telling
}

// onEnd sets what is called when a pause ends.
func (p *pauses) onEnd(f func()) {
	p.mu.Lock()
	p.ended = f
	p.mu.Unlock()
}

// announcePause tells log, observer and the source of wake-ups what has changed. Nothing is told twice,
// nor in another order, whoever calls it. If it is called during such a call, that one tells.
func (s *session) announcePause() {
	before, now, ok := s.pauses.announcement(false)
	for ok {
		s.tellOfPause(before, now)
		before, now, ok = s.pauses.announcement(true)
	}
}

func (s *session) tellOfPause(before, now PausedBy) {
	s.changed()
	if now == NotPaused {
		s.report.info("resumed", slog.String("was_paused_by", before.String()))
	} else {
		s.setReady(false) // events are for instances that are not paused
		if s.pool.hears().owed() {
			s.wakeAnother() // also the one that this instance was woken for
		}
		s.report.info("paused", slog.String("by", now.String()))
	}
	if f := s.options.Observer.Paused; f != nil {
		f(Pause{Queue: s.queue.Name(), By: now})
	}
}

// Pause describes the beginning, the end or a change of a pause.
type Pause struct {
	Queue queue.Name
	By    PausedBy // NotPaused if it has ended
}

// awaitResume waits while the listener is paused, and until ctx ends. The loop has left the pool if
// more loops run than the settings allow.
func (l *loop) awaitResume(ctx context.Context) (left bool) {
	for ctx.Err() == nil {
		changed := l.pauses.wait()
		if changed == nil {
			return false
		}
		if l.stopIfExcess() {
			l.wake.signal() // it may have taken one before the pause
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return false
}

// mayFetch reports whether the loop may send a dequeue, or a request before one.
func (l *loop) mayFetch() bool { return l.looping.Err() == nil && !l.pauses.paused() }

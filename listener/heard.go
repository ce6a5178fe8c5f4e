package listener

import (
	"time"
)

// Events, changes of Listening and calls of Wake cause a burst of this many polls at once, and then one
// in eventInterval, or in Idle.Max if that is less. A dequeue that finds messages allows a new burst.
const (
	eventBurst    = 10
	eventInterval = time.Second
)

// heard counts what a listener has heard that calls for a poll: events, changes of Listening, calls of
// Wake, messages that become visible again, changed settings. The lock of the loopPool guards it. So
// there is one order of what is heard, of polls that begin, and of loops that start and end: a loop
// leaves no signal behind that nobody hears.
type heard struct {
	number    uint64    // how much was heard; goes up only when no poll is owed
	polled    uint64    // number when the newest dequeue was about to be sent: if it is less, a poll is owed
	at        time.Time // when that was: a safety poll follows if there is none for long
	listening bool      // the source delivers events to this listener
	connected bool      // the source said so last
	ready     bool      // the source is told that there is room for work, or will be in a moment
	paid      time.Time // when the rate of polls for events allows the next one, were there no burst
}

// take counts a poll for an event, or returns how long it must wait for its turn. Requires the lock of
// the pool.
func (h *heard) take(interval time.Duration) (wait time.Duration) {
	now := time.Now()
	if h.paid.Before(now) {
		h.paid = now
	}
	if wait = h.paid.Sub(now) - (eventBurst-1)*interval; wait > 0 {
		return wait
	}
	h.paid = h.paid.Add(interval)
	return 0
}

// hear records that a poll is called for, and starts a loop if none runs, or else wakes one. While a
// poll is owed anyway it does nothing: any number of reasons is worth one poll. With an interval the
// poll may have to wait for its turn; then nothing is recorded, and the caller must come again.
func (f *loopPool) hear(interval time.Duration) (fresh bool, wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.heard.number == f.heard.polled {
		if interval > 0 && !f.closed {
			if wait = f.heard.take(interval); wait > 0 {
				return false, wait
			}
		}
		f.heard.number++
		fresh = true
	}
	switch {
	case f.closed:
	case f.active == 0:
		f.startOne()
	case fresh:
		f.signal()
	}
	return fresh, 0
}

// startOne starts a loop. Requires mu.
func (f *loopPool) startOne() {
	f.added(1)
	f.begin()
}

// beginPoll records that a dequeue is about to be sent, which serves all that was heard so far. It
// returns the number of that, and whether a poll was owed.
func (f *loopPool) beginPoll() (seen uint64, owed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	owed = f.heard.owed()
	f.heard.polled, f.heard.at = f.heard.number, time.Now()
	return f.heard.number, owed
}

// refused records that a limit has held back the dequeue of beginPoll: nothing was sent, so a poll that was
// owed is owed still.
func (f *loopPool) refused(owed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if owed && !f.heard.owed() {
		f.heard.number++
	}
}

// beginReading records that the depth is about to be read in place of a poll, while all open slots are
// taken.
func (f *loopPool) beginReading() {
	f.mu.Lock()
	f.heard.polled = f.heard.number
	f.mu.Unlock()
}

// found records that a dequeue has found messages.
func (f *loopPool) found() {
	f.mu.Lock()
	f.heard.paid = time.Time{}
	f.mu.Unlock()
}

// leave counts the calling loop as ended after an empty poll, if events reach the listener. seen is what
// beginPoll returned before that poll. The last loop may only leave if nothing was heard since: what
// was heard later may be about a message that came after the service had looked. The others
// leave it to that loop, unless no poll since then has begun. If the loop must not leave, it polls again.
func (f *loopPool) leave(seen uint64) (left, again bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.heard.listening || f.closed || f.active <= f.bounds.Min {
		return false, false
	}
	if f.heard.number != f.heard.polled || f.active == 1 && f.heard.number != seen {
		return false, true
	}
	f.ended()
	if f.active == 0 {
		f.drain() // that poll has served the signal that is left
	}
	f.changed(f.active)
	return true, false
}

// listen records what the source says about whether events reach the listener.
func (f *loopPool) listen(on bool) {
	f.mu.Lock()
	f.heard.listening, f.heard.connected = on, on
	f.mu.Unlock()
}

// unlisten records that no events reach the listener, because it has no room for work. A loop runs from
// then on.
func (f *loopPool) unlisten() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard.listening = false
	if f.active == 0 && !f.closed {
		f.startOne()
	}
}

// setReady sets whether there is room for work, and reports whether that is a change.
func (f *loopPool) setReady(ready bool) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed = f.heard.ready != ready
	f.heard.ready = ready
	return changed
}

// hears returns what was heard, for those that decide nothing about loops.
func (f *loopPool) hears() heard {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heard
}

// owed reports whether something was heard that no poll has served.
func (h heard) owed() bool { return h.number != h.polled }

package localqueue

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/queue"
)

// watcher hears of the visible messages of a queue. It implements [localengine.Watcher].
//
// Of several ready watchers of a queue one is woken, in turn: by a message that is put, or that becomes
// visible after a delay or when its lease ends. The next one is woken if messages are still visible after
// a dequeue, whoever made it; or if the woken one is closed or not ready any more before there was a
// dequeue. If there is no dequeue for 500 ms, two more are woken, then four, then all, and 5 s later one
// again. So however many watchers hang, a message waits less than 2 s for one that does not.
type watcher struct {
	in    *queueState
	queue *handle
	woken chan int64 // buffers one
	ended chan struct{}
	once  sync.Once // closes ended

	closed bool // guarded by in.mu
	ready  bool // guarded by in.mu
	late   int  // guarded by in.mu; how often nobody dequeued in time after it was woken, since it became ready
	owes   int  // guarded by in.mu; so many dequeues must follow its wake-ups until it is quick again; 0 if it is
}

const (
	// patience is how long woken watchers may take to dequeue before more are woken. It is long
	// compared with a round trip.
	patience = 500 * time.Millisecond

	// mostAtOnce is how many more are woken at most, before all are.
	mostAtOnce = 4

	// startOver is how long after all were woken one is woken again.
	startOver = 5 * time.Second

	// mostDoublings bounds what a watcher owes that is late again and again.
	mostDoublings = 6
)

// watchers are the watchers of one queue. The queue's lock guards all of it.
//
// They look at the queue after every call on it and by a timer. What they do depends on what they see
// then and not on how it came about, so that no order of calls loses a message: if messages are visible
// and watchers are ready, some were told, nobody has dequeued since, and a timer watches that.
type watchers struct {
	all   []*watcher
	ready []*watcher // in the order in which they are woken, and then those that were told
	told  int        // so many were woken, and nobody has dequeued since
	last  int        // of these, the ones that were woken together last
	until instant    // when the patience with them ends
	bytes int64      // of the messages that were put since the last dequeue

	timer *time.Timer // makes the next look; nil until it is needed
	at    instant     // when it fires; never if it is not set
}

// Watch implements [localengine.Queue].
func (q *handle) Watch(ctx context.Context) (localengine.Watcher, error) {
	w, err := q.watch(ctx)
	if err != nil {
		return nil, err
	}
	return w, nil
}

func (q *handle) watch(ctx context.Context) (*watcher, error) {
	const op = "watch"
	s, at, err := q.begin(ctx, noSpace, nil)
	if err != nil {
		return nil, q.fail(op, "", err)
	}
	if q.engine.closed.Load() { // Close may have passed this queue
		q.end(s)
		return nil, q.fail(op, "", errClosed())
	}
	w := &watcher{in: s, queue: q, woken: make(chan int64, 1), ended: make(chan struct{})}
	if s.watchers == nil {
		s.watchers = &watchers{at: never}
	}
	s.watchers.all = append(s.watchers.all, w)
	s.watchers.admit(w, at)
	if err := q.end(s).wait(ctx); err != nil {
		_ = w.Close() // never fails
		return nil, q.fail(op, "", err)
	}
	return w, nil
}

// Woken implements [localengine.Watcher].
func (w *watcher) Woken() <-chan int64 { return w.woken }

// Ended implements [localengine.Watcher].
func (w *watcher) Ended() <-chan struct{} { return w.ended }

// Ready implements [localengine.Watcher].
func (w *watcher) Ready(ready bool) {
	w.change(func(all *watchers, at instant) {
		switch {
		case ready == w.ready:
		case ready:
			all.admit(w, at)
		default:
			all.dismiss(w)
		}
	})
}

// Close implements [localengine.Watcher].
func (w *watcher) Close() error {
	w.change(func(all *watchers, _ instant) {
		w.closed = true
		all.dismiss(w)
		all.all = slices.DeleteFunc(all.all, func(x *watcher) bool { return x == w })
	})
	return nil
}

// change calls f with the lock held, unless the watcher is closed or has ended, and looks.
func (w *watcher) change(f func(*watchers, instant)) {
	s := w.in
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.closed || s.watchers == nil {
		return
	}
	at := w.queue.engine.clock.now()
	f(s.watchers, at)
	w.queue.look(s)
}

// end ends the watcher, whose queue is gone.
func (w *watcher) end() { w.once.Do(func() { close(w.ended) }) }

// admit makes w ready, as the last in turn. The caller tells its owner, who dequeues then.
func (all *watchers) admit(w *watcher, at instant) {
	w.ready, w.late, w.owes = true, 0, 0
	all.ready = slices.Insert(all.ready, len(all.ready)-all.told, w)
	if all.told == 0 {
		all.told, all.last, all.until = 1, 1, at+instant(patience)
	}
}

func (all *watchers) dismiss(w *watcher) {
	w.ready = false
	i := slices.Index(all.ready, w)
	if i < 0 {
		return
	}
	if i >= len(all.ready)-all.told {
		all.told--
	}
	if i >= len(all.ready)-all.last {
		all.last--
	}
	all.ready = slices.Delete(all.ready, i, i+1)
}

// dequeued says that somebody has dequeued. Who it was is unknown: the watcher that was told, or one that
// polls because it has no room. So one that hangs seems to answer now and then, and each time it turns out
// not to, it owes twice as many answers. If no watcher is quick, those that were told last count as quick:
// one of them probably is.
func (all *watchers) dequeued() {
	if all == nil {
		return
	}
	switch newest := all.ready[len(all.ready)-all.last:]; {
	case all.told == 1 && all.last == 1:
		newest[0].owes = max(newest[0].owes-1, 0)
	case !slices.ContainsFunc(all.ready, (*watcher).quick):
		for _, w := range newest {
			w.owes = 0
		}
	}
	all.told, all.last, all.bytes = 0, 0, 0
}

func (w *watcher) quick() bool { return w.owes == 0 }

// look wakes watchers if messages are visible and nobody was told, or has dequeued in time. The caller holds the lock.
func (q *handle) look(s *queueState) {
	all := s.watchers
	if all == nil {
		return
	}
	at := q.engine.clock.now()
	if len(all.all) == 0 {
		all.stop()
		s.watchers = nil
		return
	}
	if all.at <= at {
		all.at = never // the timer has fired
	}
	switch due := s.backlog.nextDue(); {
	case due > at:
		all.told, all.last, all.bytes = 0, 0, 0 // somebody has taken what there was
		all.wait(q, due, at)
	case len(all.ready) == 0: // the next one that is ready dequeues
	case all.told > 0 && at < all.until:
		all.wait(q, all.until, at)
	default:
		all.wake(at)
		all.wait(q, all.until, at)
	}
}

// wake wakes the next ready watcher, or more of them the longer nobody has dequeued. Those that were
// slow to dequeue, or never do, come after the others.
func (all *watchers) wake(at instant) {
	left := len(all.ready) - all.told
	for _, w := range all.ready[len(all.ready)-all.last:] {
		w.owes = 1 << min(w.late, mostDoublings)
		w.late++
	}
	if all.last = 0; left == 0 {
		all.told, left = 0, len(all.ready)
	}
	n := all.told + 1
	if n > mostAtOnce {
		n = left
	}
	for ; n > 0 && left > 0; n, left = n-1, left-1 {
		i := max(0, slices.IndexFunc(all.ready[:left], (*watcher).quick))
		w := all.ready[i]
		all.ready = append(slices.Delete(all.ready, i, i+1), w)
		all.told++
		all.last++
		select {
		case <-w.woken: // replaced
		default:
		}
		w.woken <- all.bytes // only this sends, with the lock held
	}
	if all.until = at + instant(patience); left == 0 {
		all.until = at + instant(startOver)
	}
}

// wait makes the timer look at the given instant. If it is set for an earlier one it stays: a look too
// many every now and then costs less than setting the timer for every message.
func (all *watchers) wait(q *handle, until, at instant) {
	if until >= all.at || len(all.ready) == 0 {
		return
	}
	all.at = until
	d := time.Duration(until - at)
	if all.timer != nil {
		all.timer.Reset(d)
		return
	}
	all.timer = time.AfterFunc(d, func() {
		if s, _, err := q.begin(context.Background(), noSpace, nil); err == nil {
			q.end(s) // looks
		}
	})
}

func (all *watchers) stop() {
	if all.timer != nil {
		all.timer.Stop()
	}
}

// endWatchers ends all watchers of a queue that is gone. The caller holds the lock.
func (s *queueState) endWatchers() {
	if s.watchers == nil {
		return
	}
	for _, w := range s.watchers.all {
		w.end()
	}
	s.watchers.stop()
	s.watchers = nil
}

func (e *Engine) endWatchers() {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, a := range e.accounts {
		a.mu.RLock()
		for _, s := range a.queues {
			s.mu.Lock()
			s.endWatchers()
			s.mu.Unlock()
		}
		a.mu.RUnlock()
	}
}

// nextDue returns when the first message is or becomes visible, or never.
func (b *backlog) nextDue() instant {
	if b.due.len() == 0 {
		return never
	}
	return b.due.first().at
}

func errClosed() error {
	return &queue.Error{Kind: queue.ErrUnavailable, Err: ErrClosed, Hint: "open it again"}
}

// message is one message in memory. The queue's lock guards all fields except sequence and
// inserted, which never change.
type message struct {
	sequence uint64 // insertion order, from 1
	inserted instant

	text     string  // "" if only the store has it
	unsaved  uint64  // the number of the batch that saves the text; 0 when it is saved, or there is no store
	due      instant // visible at and after
	expires  instant // expired at and after; never if it has no TTL
	dequeues int64
	receipt  uint64 // ordinal of the newest receipt

	position [indexes]int // its position in each timeline, or absent
}

// backlog holds the messages of one queue and the indexes over them. It has no lock and no
// clock: the queue calls it with its lock held and passes the time. A store has to record
// exactly what passes through add, hide, remove and clear.
type backlog struct {
	messages table    // every message by its sequence
	due      timeline // every message by the time it becomes visible
	expiring timeline // messages with a TTL, by expiry
}

// shrinkAbove is the capacity above which an emptied backlog releases its memory: maps and
// slices never shrink by themselves.
const shrinkAbove = 1024

func newBacklog() backlog {
	return backlog{due: timeline{index: byDue}, expiring: timeline{index: byExpiry}}
}

func (b *backlog) len() int { return b.messages.len }

func (b *backlog) add(m *message) {
	m.position = [indexes]int{absent, absent}
	b.messages.put(m)
	if m.due <= m.inserted {
		b.due.add(m, m.due)
	} else {
		b.due.put(m, m.due)
	}
	if m.expires != never {
		b.expiring.add(m, m.expires)
	}
}

func (b *backlog) remove(m *message) {
	b.messages.remove(m.sequence)
	b.due.remove(m)
	b.expiring.remove(m)
	if b.len() == 0 && cap(b.due.heap)+cap(b.expiring.heap) > shrinkAbove {
		*b = newBacklog()
	}
}

func (b *backlog) hide(m *message, until instant) {
	m.due = until
	b.due.put(m, until)
}

func (b *backlog) expired(at instant) *message {
	if b.expiring.len() > 0 {
		if first := b.expiring.first(); first.at <= at {
			return first.message
		}
	}
	return nil
}

// next returns the first visible message, or nil.
func (b *backlog) next(at instant) *message {
	if b.due.len() == 0 {
		return nil
	}
	if first := b.due.first(); first.at <= at {
		return first.message
	}
	return nil
}

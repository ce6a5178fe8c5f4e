package paired

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// minLimited is how long a lane waits at least when a limit of the program holds it back.
const minLimited = 10 * time.Millisecond

// lane empties one backlog queue.
type lane struct {
	syphon  *Syphon
	backlog queue.Queue
	spread  string          // makes its waits different from those of others
	soon    chan struct{}   // something may have come; a buffer of one
	state   SyphonedBacklog // guarded by syphon.mu
}

// wake lets the lane poll soon.
func (l *lane) wake() { waiting.Signal(l.soon, struct{}{}) }

// run polls until ctx ends. The requests have a context of their own.
func (l *lane) run(ctx, requests context.Context) {
	idle := idleWaits{key: l.spread, least: l.syphon.options.MinPoll, most: l.syphon.options.MaxPoll}
	rests := retry.NewWaits(l.spread, minRest, maxRest)
	busy := false // whether the last poll found something
	for {
		try, ok := l.syphon.homes.enter(ctx)
		if !ok {
			return
		}
		polled := time.Now()
		found, full, err := l.poll(ctx, requests, try)
		if try {
			l.syphon.homes.left(found > 0)
		}
		after, limited := retry.Limited(err)
		switch {
		case limited:
			if !waiting.For(max(after, minLimited), ctx.Done()) {
				return
			}
			continue
		case err != nil && !errors.Is(err, queue.ErrQueueMissing):
			if !waiting.For(restFor(rests, err), ctx.Done()) {
				return
			}
			continue
		case found > 0:
			if !busy {
				l.syphon.wakeOthers(l) // an outage diverts to all of them
			}
			idle.reset()
		default:
			if full { // of messages that it leaves: others may be behind them
				idle.reset()
			}
			l.idle(ctx, &idle, polled)
		}
		busy = found > 0
		rests.Reset()
	}
}

// idle waits for the next poll of an empty queue: until the wait is over, or until something may have
// come, but never less than the shortest wait since the last poll.
func (l *lane) idle(ctx context.Context, idle *idleWaits, polled time.Time) {
	wait := idle.next()
	waiting.ForChange(wait, l.soon, ctx.Done())
	if time.Since(polled) >= wait || ctx.Err() != nil {
		return
	}
	idle.reset()
	waiting.For(idle.next()-time.Since(polled), ctx.Done())
}

// poll takes messages and works on them. It returns how many it did not have to leave, and whether it got
// as many as it asked for.
func (l *lane) poll(ctx, requests context.Context, try bool) (found int, full bool, err error) {
	s := l.syphon
	begun := time.Now()
	n := s.homes.batch(try)
	s.count(&s.polling, 1)
	batch, err := l.backlog.Dequeue(requests, n, s.options.Lease)
	l.polled(begun, len(batch), err)
	if err != nil && !errors.Is(err, queue.ErrLimited) {
		s.report(err)
	}
	if err != nil || len(batch) == 0 {
		return 0, false, err
	}
	lease := lease{begun: begun, end: begun.Add(s.options.Lease - time.Second), half: begun.Add(s.options.Lease / 2)}
	brought := make([]bool, len(batch))
	var moves sync.WaitGroup
	for i := range batch {
		s.slots <- struct{}{} // never for long: requests end with their leases
		moves.Go(func() {
			defer func() {
				s.count(&s.state.InHand, -1)
				<-s.slots
			}()
			brought[i] = l.bring(ctx, requests, &batch[i], lease)
		})
	}
	moves.Wait()
	for _, is := range brought {
		if is {
			found++
		}
	}
	return found, len(batch) == n, nil
}

// polled takes the result of a poll. A limit of the program sent nothing.
func (l *lane) polled(at time.Time, n int, err error) {
	s := l.syphon
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polling--
	s.state.InHand += int64(n)
	if errors.Is(err, queue.ErrLimited) {
		return
	}
	s.state.Requests.Polls++
	l.state.Polled, l.state.LastError = at, err
	if err == nil {
		l.state.Empty = n == 0
	}
	if err == nil && n == 0 {
		s.state.Requests.EmptyPolls++
	}
}

// idleWaits is how long an empty backlog queue waits for its next poll: twice as long after each empty
// poll.
type idleWaits struct {
	key         string
	least, most time.Duration
	n           int           // waits drawn
	last        time.Duration // 0 after a poll that found something
}

func (w *idleWaits) next() time.Duration {
	w.n++
	u := waiting.Jitter(w.key+" idle", w.n)
	switch {
	case w.last == 0:
		w.last = w.least
	case w.last < w.most && w.last*2 >= w.most:
		w.last = w.most
		// The first wait that is as long as any is anywhere within it, so that the queues, and the
		// instances, do not poll in step: an outage is then found as soon as one of them does.
		return max(w.least, time.Duration(u*float64(w.most)))
	default:
		w.last = min(w.last*2, w.most)
	}
	return time.Duration(float64(w.last) * (1 + u/10))
}

// reset starts over: something was found, or may have come.
func (w *idleWaits) reset() { w.last = 0 }

// How long a message that cannot be brought home is hidden: twice as long at each delivery.
const (
	minLeft = time.Minute
	maxLeft = time.Hour
)

// failedDelay is how long a message whose copy failed is hidden, in which the others are tried.
const failedDelay = time.Second

// lease is how long messages are ours, by the monotonic clock: from the instant before the dequeue, less
// a second, so that no skew of clocks moves it.
type lease struct{ begun, half, end time.Time }

// bring brings one message home, and reports false if it had to leave it. Lanes hold a slot meanwhile.
func (l *lane) bring(ctx, requests context.Context, m *queue.Message, held lease) bool {
	s := l.syphon
	requests, cancel := context.WithDeadline(requests, held.end)
	defer cancel()
	if s.copied.has(l.key(m)) {
		l.deleteCopied(requests, m, held)
		return true
	}
	r, text, to, err := s.open(m)
	if err != nil {
		l.leave(requests, m, held, &s.state.Unreadable, fmt.Errorf("paired: message %s of %v cannot be brought home and is left there: %w", m.ID, l.backlog.Name(), err))
		return false
	}
	if time.Now().After(held.half) { // its lease ends by itself
		return true
	}
	if ctx.Err() != nil {
		l.giveBack(requests, m, held, 0)
		return true
	}
	now := serviceTime(*m, s.options.Lease, time.Since(held.begun))
	if !now.Before(m.Expires) { // the service has dropped it
		s.count(&s.state.Expired, 1)
		return true
	}
	if ok, wait := s.homes.admit(to); !ok {
		l.giveBack(requests, m, held, wait)
		return true
	}
	return l.copy(requests, m, to, text, r.options(*m, now), held)
}

// open returns the record and the text of a message, and the primary queue that it belongs into.
func (s *Syphon) open(m *queue.Message) (record, string, *home, error) {
	r, text, err := openRecord(m.Text)
	if err != nil {
		return record{}, "", nil, err
	}
	to := s.homes.all[r.primary.Queue]
	if to == nil || r.primary.Account != "" && r.primary.Account != to.queue.Name().Account {
		return record{}, "", nil, fmt.Errorf("it belongs into the queue %v, to which this syphon brings nothing", r.primary)
	}
	return r, text, to, nil
}

// copy copies a message to its primary queue and deletes it.
func (l *lane) copy(requests context.Context, m *queue.Message, to *home, text string, o *queue.EnqueueOptions, held lease) bool {
	s := l.syphon
	_, err := to.queue.Enqueue(requests, text, o)
	if after, limited := retry.Limited(err); limited { // nothing was sent
		s.homes.unsaid(to)
		l.giveBack(requests, m, held, max(after, failedDelay))
		return true
	}
	s.count(&s.state.Requests.Copies, 1)
	switch {
	case err == nil:
		s.homes.accepted(to)
		s.count(&s.state.Moved, 1)
		l.deleteCopied(requests, m, held)
		s.home(to.queue.Name(), o.Delay) // after the delete: a slow hook would outlast the lease
		return true
	case errors.Is(err, queue.ErrInvalid), errors.Is(err, queue.ErrTooLarge):
		s.homes.unsaid(to)
		l.leave(requests, m, held, &s.state.Refused, fmt.Errorf("paired: message %s of %v is left there, because the primary queue refuses it: %w", m.ID, l.backlog.Name(), err))
		return false
	case errors.Is(err, queue.ErrOutcomeUnknown):
		s.count(&s.state.Doubtful, 1)
	}
	s.report(err)
	s.homes.refused(to, err)
	delay := failedDelay
	if errors.Is(err, queue.ErrThrottled) {
		delay = busyWait
	}
	l.giveBack(requests, m, held, delay)
	return true
}

// deleteCopied deletes a message that was copied. If that fails, this syphon copies it no more.
func (l *lane) deleteCopied(requests context.Context, m *queue.Message, held lease) {
	s := l.syphon
	err := l.delete(requests, m, held)
	if err == nil {
		return
	}
	if s.copied.add(l.key(m)) {
		s.count(&s.state.Doubtful, 1)
	}
	s.report(err)
}

// delete deletes a message that is to be in the backlog queue no more.
func (l *lane) delete(requests context.Context, m *queue.Message, held lease) error {
	err := retry.Do(requests, string(m.ID), queue.Transient, func(ctx context.Context) error {
		l.syphon.count(&l.syphon.state.Requests.Deletes, 1)
		return l.backlog.Delete(ctx, m.Lease)
	})
	if errors.Is(err, queue.ErrMessageGone) && time.Now().Before(held.end) {
		return nil // an earlier request took effect, or its life has ended: nobody else could take it
	}
	return err
}

// giveBack makes a message visible again after the delay. If that fails its lease ends by itself. One that
// has no second of life left for its delay expires under its lease: visible at once, it would be taken again
// and again until it expires.
func (l *lane) giveBack(requests context.Context, m *queue.Message, held lease, delay time.Duration) {
	hidden := l.within(m, held, delay)
	if hidden == 0 && delay > 0 {
		return
	}
	l.syphon.count(&l.syphon.state.Requests.GiveBacks, 1)
	if _, err := l.backlog.Update(requests, m.Lease, m.Text, hidden); err != nil && requests.Err() == nil {
		l.syphon.report(err)
	}
}

// leave hides a message that cannot be brought home, and counts and reports it once.
func (l *lane) leave(requests context.Context, m *queue.Message, held lease, count *int64, why error) {
	if l.syphon.leftAlone.add(l.key(m)) {
		l.syphon.count(count, 1)
		l.syphon.report(why)
	}
	wait := minLeft
	for n := m.DequeueCount; n > 1 && wait < maxLeft; n-- {
		wait *= 2
	}
	l.giveBack(requests, m, held, min(wait, maxLeft))
}

// within shortens a delay to half of the remaining life of a message, in whole seconds: the service hides
// none for longer than it lives.
func (l *lane) within(m *queue.Message, held lease, delay time.Duration) time.Duration {
	if m.Expires.IsZero() || m.Expires.Year() >= 9999 {
		return delay
	}
	left := m.Expires.Sub(serviceTime(*m, l.syphon.options.Lease, time.Since(held.begun)))
	return min(delay, max(left/2, 0)).Truncate(time.Second)
}

func (l *lane) key(m *queue.Message) messageKey { return messageKey{l.backlog.Name(), m.ID} }

package paired

import (
	"context"
	"errors"
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
	spread  string        // makes its waits different from those of others
	soon    chan struct{} // something may have come; a buffer of one

	mu    sync.Mutex
	state SyphonedBacklog // guarded by mu
}

func newLane(s *Syphon, backlog queue.Queue, spread string) *lane {
	return &lane{
		syphon: s, backlog: backlog, spread: spread, soon: make(chan struct{}, 1),
		state: SyphonedBacklog{Queue: backlog.Name()},
	}
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
		var limit *queue.LimitedError
		switch {
		case errors.As(err, &limit):
			if !waiting.For(max(limit.After, minLimited), ctx.Done()) {
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
	s.counts.polling.Add(1)
	batch, err := l.backlog.Dequeue(requests, n, s.options.Lease)
	s.counts.inHand.Add(int64(len(batch)))
	s.counts.polling.Add(-1)
	if errors.Is(err, queue.ErrLimited) { // nothing was sent
		return 0, false, err
	}
	s.counts.polls.Add(1)
	l.polled(begun, len(batch), err)
	if err != nil {
		s.report(err)
		return 0, false, err
	}
	if len(batch) == 0 {
		s.counts.emptyPolls.Add(1)
		return 0, false, nil
	}
	lease := lease{begun: begun, end: begun.Add(s.options.Lease - time.Second), half: begun.Add(s.options.Lease / 2)}
	brought := make([]bool, len(batch))
	var moves sync.WaitGroup
	for i := range batch {
		s.slots <- struct{}{} // never for long: requests end with their leases
		moves.Go(func() {
			defer func() {
				s.counts.inHand.Add(-1)
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

func (l *lane) polled(at time.Time, n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.Polled, l.state.LastError = at, err
	if err == nil {
		l.state.Empty = n == 0
	}
}

func (l *lane) snapshot() SyphonedBacklog {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
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

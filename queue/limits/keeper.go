package limits

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

const (
	renewAfter = 20 * time.Second // and up to a quarter more
	renewAgain = 2 * time.Second  // after a renewal that failed, and up to half more
	keepEvery  = time.Second      // while there are tokens

	// stuckFor is how long a stop waits for handlers that were told to end and do not.
	stuckFor = 10 * time.Second

	giveBackTimeout = 10 * time.Second // and for a look

	earlyRun = 10 * time.Second // how long dequeues may come before Run
)

// Run keeps the tokens of this process: it renews them, gives them back, and ends the contexts of handlers whose token
// is lost. When ctx ends no handler starts any more; Run returns when those that run have returned and
// their tokens are given back, or 10 s after the last of their contexts has ended. It may be called once, and run at the same
// time as the listeners or around them, such as by millrace.Run or millrace.RunOrdered.
func (l *ConcurrencyLimit) Run(ctx context.Context) error {
	l.mu.Lock()
	if l.phase != idle {
		l.mu.Unlock()
		return errors.New("limits: Run of a ConcurrencyLimit was called before: open another")
	}
	l.phase = working
	l.mu.Unlock()
	requests, cancel := context.WithCancel(request.WithCause(context.WithoutCancel(ctx), request.CauseLimit))
	var sent sync.WaitGroup
	defer sent.Wait()
	defer l.end()
	defer cancel()
	stop := ctx.Done()
	timer := time.NewTimer(keepEvery)
	defer timer.Stop()
	var stuck time.Time // since when only handlers run that were told to end
	for {
		done := stop == nil && l.drained(&stuck) // before the last tokens are given back
		renew, back := l.due(time.Now())
		for _, t := range renew {
			sent.Go(func() { l.renew(requests, t) })
		}
		for _, m := range back {
			sent.Go(func() { l.giveBack(requests, m) })
		}
		if l.isTurn(time.Now()) {
			sent.Go(func() { l.look(requests) })
		}
		if done {
			sent.Wait()
			return nil
		}
		tick := timer.C
		if !l.busy() {
			tick = nil
		}
		timer.Reset(keepEvery)
		select {
		case <-tick:
		case <-l.wake:
		case <-l.halted:
			return nil
		case <-stop:
			stop = nil
			l.beginStop()
		}
	}
}

// Halt makes Run return as soon as possible, also while handlers run. Their tokens come back within a minute. It does
// not wait, and may be called at any time.
func (l *ConcurrencyLimit) Halt() { l.halt.Do(func() { close(l.halted) }) }

func (l *ConcurrencyLimit) beginStop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = stopping
	for _, j := range slices.Collect(l.jobs.all()) {
		if len(j.calls) == 0 {
			l.remove(j)
		}
	}
}

// end ends the limit. Handlers that still run are told to end.
func (l *ConcurrencyLimit) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = stopped
	l.held = nil
	l.changed()
	l.update(time.Now())
}

func (l *ConcurrencyLimit) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase == stopping || len(l.held) > 0 || len(l.jobs) > 0
}

// drained reports whether no handler runs any more, and no request, or only such as do not end. Stuck is since when no
// handler runs that was not told to end.
func (l *ConcurrencyLimit) drained(stuck *time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.reserved > 0 || l.asking || slices.ContainsFunc(l.held, func(t *heldToken) bool { return t.renewing })
	for j := range l.jobs.all() {
		for _, c := range j.calls {
			waiting = true
			if c.context.Err() == nil {
				*stuck = time.Time{}
				return false
			}
		}
	}
	now := time.Now()
	if stuck.IsZero() {
		*stuck = now
	}
	return !waiting || now.Sub(*stuck) >= stuckFor
}

// due returns the tokens that are to be renewed, and those that are given back, which are no longer held.
func (l *ConcurrencyLimit) due(now time.Time) (renew []*heldToken, back []queue.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Forget jobs whose messages must have started by now.
	var over []*job
	for j := range l.jobs.all() {
		if len(j.calls) == 0 && !now.Before(j.until) {
			over = append(over, j)
		}
	}
	for _, j := range over {
		l.remove(j)
	}
	l.update(now)
	back = l.dispensable(now)
	for _, t := range l.held {
		if !t.lost && !t.renewing && !now.Before(t.renewAt) {
			t.renewing = true
			renew = append(renew, t)
		}
	}
	return renew, back
}

// dispensable takes out tokens that go back: what is not needed, and from time to time one for others. Whatever it
// takes, the rest is worth what is used. Requires mu.
func (l *ConcurrencyLimit) dispensable(now time.Time) (back []queue.Message) {
	var free []*heldToken // that could go, the one held for longest first
	usable, t := 0, &l.turns
	for _, one := range l.held {
		if one.lost || !one.good(now) {
			continue
		}
		if usable++; !one.renewing {
			free = append(free, one)
		}
	}
	t.leaving = min(t.leaving, usable)
	// While a request for tokens is under way it could get the very ones that leave.
	for t.leaving > 0 && len(free) > 0 && !l.asking && (usable-1)*l.limit.PerToken >= l.used() {
		back, free = append(back, l.takeOut(free[0])), free[1:]
		usable--
		if t.leaving--; t.leaving == 0 {
			t.left(now, usable+1)
		}
		l.askAt = now.Add(yieldFor + time.Duration(l.jitter()*float64(yieldFor)/2))
		l.empties = 0
	}
	n := t.surplus(now, usable-t.leaving, l.limit.PerToken, l.used(), l.phase == stopping)
	for _, one := range free[:min(n, len(free))] {
		back = append(back, l.takeOut(one))
	}
	return back
}

// isTurn reports whether it is time to give back a token that is needed, if others may wait for it.
func (l *ConcurrencyLimit) isTurn(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &l.turns
	if t.leaving > 0 || t.looking || l.phase != working || len(l.held) == 0 || now.Before(t.next) {
		return false
	}
	t.looking = true
	return true
}

// look decides how many tokens are given back next. While others can be had nobody waits for one.
func (l *ConcurrencyLimit) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, giveBackTimeout)
	defer cancel()
	found, err := l.source.queue.Peek(ctx, 1)
	free := err == nil && len(found) > 0 && l.source.valid(&found[0])
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	t := &l.turns
	t.looking = false
	held := 0
	for _, one := range l.held {
		if !one.lost && one.good(now) {
			held++
		}
	}
	if err != nil || free || held == 0 {
		t.length = max(t.length, minTurn)
		t.later(now, held)
		return
	}
	t.size = min(max(t.size, 1), (held+3)/4)
	t.began, t.leaving = now, t.size
	l.changed()
	waiting.Signal(l.wake, struct{}{})
}

// takeOut takes a token out of those that are held. Requires mu.
func (l *ConcurrencyLimit) takeOut(t *heldToken) queue.Message {
	l.held = slices.DeleteFunc(l.held, func(one *heldToken) bool { return one == t })
	l.changed()
	return t.message
}

// renew extends the lease of a token. The request is not cut short while the lease lasts: with its response the
// receipt would be lost.
func (l *ConcurrencyLimit) renew(ctx context.Context, t *heldToken) {
	l.mu.Lock()
	m, until := t.message, t.until
	l.mu.Unlock()
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	asked := time.Now()
	lease, err := l.source.queue.Update(ctx, m.Lease, m.Text, tokenLease)
	l.mu.Lock()
	defer l.mu.Unlock()
	t.renewing = false
	l.changed()
	if l.phase == stopping {
		waiting.Signal(l.wake, struct{}{})
	}
	switch {
	case err == nil:
		t.message.Lease, t.until = lease, asked.Add(tokenLease)
		l.renewLater(t, asked)
	case errors.Is(err, queue.ErrLeaseLost):
		// While the lease lasts nobody else has it: an earlier renewal has taken effect, and its response was lost. It
		// cannot be renewed until it comes back by itself. Handlers may run under it until then, and none starts.
		t.lost = true
		l.askAt = time.Time{} // for another in its place
	default:
		t.renewAt = time.Now().Add(renewAgain + time.Duration(l.jitter()*float64(renewAgain)/2))
	}
}

// renewLater sets when a token is renewed that was taken or renewed by a request at that time. Requires mu.
func (l *ConcurrencyLimit) renewLater(t *heldToken, asked time.Time) {
	t.renewAt = asked.Add(renewAfter + time.Duration(l.jitter()*float64(renewAfter)/4))
}

// giveBack makes a token visible. If that fails it comes back by itself.
func (l *ConcurrencyLimit) giveBack(ctx context.Context, m queue.Message) {
	ctx, cancel := context.WithTimeout(ctx, giveBackTimeout)
	defer cancel()
	for {
		err := l.source.giveBack(ctx, m)
		if err == nil || !queue.Transient(err) || !waiting.For(renewAgain, ctx.Done()) {
			return
		}
	}
}

// notWorking returns how long a dequeue must wait, or an error, if Run is not at work. Requires mu.
func (l *ConcurrencyLimit) notWorking() (wait time.Duration, err error) {
	switch l.phase {
	case working:
		return 0, nil
	case idle:
		if l.refused.IsZero() {
			l.refused = time.Now()
		}
		if time.Since(l.refused) >= earlyRun {
			return 0, errors.New("its Run was not called: run it beside the listeners")
		}
		return earlyRun / 100, nil
	}
	return maxRoomWait, nil
}

const (
	// lingering is how long a process keeps tokens that it does not need.
	lingering = 5 * time.Second

	// minTurn is how long a process keeps a token that it needs, at least. After that others may have it.
	minTurn = time.Minute

	// firstTurn is minTurn of a process that has just started, because others may have started with it.
	firstTurn = lingering + time.Second

	// drainShare is the share of a turn in which its token may be half used, because it is about to be given back.
	drainShare = 20

	// yieldFor is for how long a process does not ask for tokens after it has given one back for others.
	yieldFor = 2 * time.Second
)

// turns decides how many tokens a process gives back. Those that it does not need go back soon. Of those that it needs
// one goes back from time to time, unless others can be had, so that no process starves while another has them all. The
// process then does not ask for a moment. Tokens that are gone after that have been taken by others: a process that has
// many gives back more, immediately. ConcurrencyLimit.mu guards it.
type turns struct {
	peak  int       // the most jobs at once since then
	since time.Time // when peak began to be measured

	leaving int           // tokens to be given back as soon as the jobs have room under the others
	size    int           // how many of them were chosen at once
	yielded int           // how many were given back and not asked for since then
	looking bool          // a request is under way that tells whether there are others
	began   time.Time     // when they were chosen
	next    time.Time     // when some are chosen next
	length  time.Duration // of a turn
}

// left notes that the leaving tokens were given back, and that the process had so many. Tokens that take long to come
// free are given back more rarely: a turn is so long that drainShare of them would fit in.
func (t *turns) left(now time.Time, held int) {
	t.length = max(minTurn, drainShare*now.Sub(t.began))
	t.yielded = t.size
	t.later(now, held)
}

// asked notes how many tokens the first request after a turn has got. The others of those that were given back are
// taken. A rich process then gives back as many again, or twice as many if all were taken.
func (t *turns) asked(now time.Time, got int, rich bool) {
	taken := t.yielded - got
	t.yielded, t.size = 0, 1
	if taken <= 0 || !rich {
		return
	}
	t.next, t.size = now, taken
	if got == 0 {
		t.size *= 2
	}
}

// later sets when some of so many tokens are chosen next.
func (t *turns) later(now time.Time, held int) {
	t.next = now.Add(max(t.length/time.Duration(max(held, 1)), 2*yieldFor))
}

// surplus returns how many of the tokens, each worth perToken, were not needed for a while.
func (t *turns) surplus(now time.Time, tokens, perToken, used int, atOnce bool) int {
	if !atOnce && now.Sub(t.since) < lingering {
		return 0
	}
	need := used
	if !atOnce {
		need = max(need, t.peak)
	}
	t.peak, t.since = used, now
	return max(tokens-(need+perToken-1)/perToken, 0)
}

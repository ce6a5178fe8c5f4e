package keyed

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// Turns bounds how many jobs of each key run at once in a process. A key is a kind of job, or a
// customer. A job whose key has no place left waits in its slot if its turn comes soon, and comes
// again when its turn is expected otherwise. Make one with [NewTurns]. It is safe for concurrent
// use.
type Turns struct {
	wait     time.Duration // how long a job waits in its slot, at most
	maxDelay time.Duration // the longest delay before a job comes again

	mu        sync.Mutex
	held      map[string]*turns // by key, while a job has a place; guarded by mu
	lines     lines             // of keys that are free; guarded by mu
	waiting   int               // jobs that wait for their turns; guarded by mu
	typical   time.Duration     // how long places are held, on average; guarded by mu
	postponed int64             // jobs that are to come again; guarded by mu
}

// NewTurns returns Turns in which no job has a place.
func NewTurns(wait, maxDelay time.Duration) *Turns {
	return &Turns{wait: wait, maxDelay: maxDelay, held: make(map[string]*turns), lines: make(lines)}
}

// Terms are the conditions of a job that asks for a place.
type Terms struct {
	Places      int  // of its key; the same for all jobs of the key
	Postponable bool // whether it can come again without an attempt; otherwise it waits as long as it takes
	MayWait     int  // how many jobs may wait in their slots
	MayWaitHere int  // how many of these for its key
}

// TurnsState describes Turns at one moment.
type TurnsState struct {
	Held    int           // keys of which a job has a place
	Waiting int           // jobs that wait in their slots
	NotRun  int64         // how often a job had to come again
	Longest time.Duration // how long the place has been held that has been held for longest
}

// State returns a snapshot.
func (k *Turns) State() TurnsState {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := TurnsState{Held: len(k.held), Waiting: k.waiting, NotRun: k.postponed}
	now := time.Now()
	for _, t := range k.held {
		s.Longest = max(s.Longest, now.Sub(t.running[0]))
	}
	return s
}

// Acquire returns the time from which the job has a place of the key. The job must release it. If
// Acquire returns a delay instead, the job should come again after that, or ctx has ended.
func (k *Turns) Acquire(ctx context.Context, key string, of Terms) (since time.Time, delay time.Duration) {
	w, limit, since, delay := k.enter(ctx, key, of)
	if w == nil {
		return since, delay
	}
	var expired <-chan time.Time
	if of.Postponable {
		expired = time.After(limit)
	}
	select {
	case since = <-w:
	case <-expired:
	case <-ctx.Done():
	}
	return k.endWait(ctx, key, w, since, of)
}

// enter gives the job a place if one is free. Otherwise it returns the job as one that waits, with the
// longest wait, or the delay before it should come again.
func (k *Turns) enter(ctx context.Context, key string, of Terms) (
	w waiter, limit time.Duration, since time.Time, delay time.Duration,
) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	t := k.held[key]
	if t == nil {
		t = k.lines.take(key, k.typical)
		k.held[key] = t
	}
	if len(t.running) < of.Places {
		t.running = append(t.running, now)
		return nil, 0, now, 0
	}
	if limit = k.patience(ctx, now, t, of); of.Postponable && limit <= 0 {
		return nil, 0, time.Time{}, k.postpone(now, t, of)
	}
	w = make(waiter, 1)
	t.waiters = append(t.waiters, w)
	k.waiting++
	return w, limit, time.Time{}, 0
}

// patience returns the longest wait of a job in its slot; zero or less if it should not wait there.
// Requires mu.
func (k *Turns) patience(ctx context.Context, now time.Time, t *turns, of Terms) time.Duration {
	if k.waiting >= of.MayWait || len(t.waiters) >= of.MayWaitHere {
		return 0
	}
	limit := k.wait
	if deadline, ok := ctx.Deadline(); ok { // of the handler, which is to have most of it
		limit = min(limit, deadline.Sub(now)/10)
	}
	if t.expected(now) > limit {
		return 0
	}
	return limit
}

// postpone returns the delay before a job should come again: until its turn is expected. Requires mu.
func (k *Turns) postpone(now time.Time, t *turns, of Terms) time.Duration {
	k.postponed++
	// Messages are hidden for whole seconds: no more come up in one than can run or wait then.
	places := time.Duration(len(t.running))
	step := max(t.length(now)/places, time.Second/(time.Duration(of.MayWaitHere)+places))
	return t.join(now, step, k.maxDelay)
}

// endWait ends the wait of a job, with the results of Acquire. If its context has ended, it passes its
// turn on.
func (k *Turns) endWait(
	ctx context.Context, key string, w waiter, since time.Time, of Terms,
) (time.Time, time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	t := k.held[key] // at least one job has a place, or this one does
	if since.IsZero() {
		select {
		case since = <-w:
		default:
		}
	}
	switch {
	case since.IsZero():
		t.waiters = slices.DeleteFunc(t.waiters, func(other waiter) bool { return other == w })
		k.waiting--
	case ctx.Err() == nil:
		return since, 0
	default:
		defer k.next(key, t, since, now)
	}
	return time.Time{}, k.postpone(now, t, of)
}

// Release ends the turn of the job whose place Acquire returned with this time.
func (k *Turns) Release(key string, since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	t := k.held[key]
	took := now.Sub(since)
	k.typical, t.typical = average(k.typical, took), average(t.typical, took)
	k.next(key, t, since, now)
}

// next gives the place to the job that has waited for longest, or makes it free. Requires mu.
func (k *Turns) next(key string, t *turns, since, now time.Time) {
	i := slices.Index(t.running, since)
	t.running = slices.Delete(t.running, i, i+1)
	if len(t.waiters) > 0 {
		w := t.waiters[0]
		t.waiters = slices.Delete(t.waiters, 0, 1)
		k.waiting--
		t.running = append(t.running, now)
		w <- now
	}
	if len(t.running) == 0 {
		delete(k.held, key)
		k.lines.put(key, t, now)
	}
}

func average(before, another time.Duration) time.Duration {
	if before == 0 {
		return another
	}
	return before + (another-before)/8
}

// turns are those of the jobs of one key while one has a place. All fields are guarded by Turns.mu.
type turns struct {
	running []time.Time   // when jobs got their places, the oldest first
	waiters []waiter      // in the order in which they came; none while a place is free
	typical time.Duration // the average run of a job of this key, of all keys until one has ended
	lineEnd time.Time     // the expected end of the turn of the job that was postponed last
}

// waiter is a job that waits in its slot. It is sent the time from which it has a place.
type waiter chan time.Time

// length returns the expected length of a turn. If all running jobs have taken longer than the
// average, turns are at least as long as the youngest has run. Some job must run.
func (t *turns) length(now time.Time) time.Duration {
	return max(t.typical, now.Sub(t.running[len(t.running)-1]))
}

// expected returns the time until a place is expected to be free for a job that comes now. A job that
// has run longer than the average is expected to take as long again.
func (t *turns) expected(now time.Time) time.Duration {
	soonest := time.Duration(math.MaxInt64)
	for _, since := range t.running {
		ran := now.Sub(since)
		left := t.typical - ran
		if left <= 0 {
			left = ran
		}
		soonest = min(soonest, left)
	}
	return soonest + time.Duration(len(t.waiters))*t.length(now)/time.Duration(len(t.running))
}

// join gives a job the next place in the line of postponed jobs. It returns the time until its turn,
// at least a second and at most maxDelay. A job beyond maxDelay gets no place yet.
func (t *turns) join(now time.Time, step, maxDelay time.Duration) time.Duration {
	turn := now.Add(t.expected(now))
	if t.lineEnd.After(turn) {
		turn = t.lineEnd
	}
	delay := turn.Sub(now)
	if delay >= maxDelay {
		return maxDelay
	}
	t.lineEnd = turn.Add(step)
	return max(delay, time.Second)
}

// A key has no turns while it is free, but postponed jobs have places in its line until they come
// again. Without the line, jobs that come too early would get the same places once more.
const (
	maxLines   = 1024 // keys whose lines are remembered
	maxLineKey = 256  // bytes of such a key, as many as a producer may set
)

// line is what is remembered of a key that is free.
type line struct {
	end     time.Time
	typical time.Duration
}

// lines are those of keys that are free. They are guarded by Turns.mu.
type lines map[string]line

// put remembers the line of a key if a job is in it. If there are too many lines, it replaces those
// that have passed, or any.
func (l lines) put(key string, t *turns, now time.Time) {
	if !t.lineEnd.After(now) || len(key) > maxLineKey {
		return
	}
	if len(l) >= maxLines {
		maps.DeleteFunc(l, func(_ string, one line) bool { return !one.end.After(now) })
	}
	for other := range l {
		if len(l) < maxLines {
			break
		}
		delete(l, other)
	}
	l[key] = line{t.lineEnd, t.typical}
}

func (l lines) take(key string, typical time.Duration) *turns {
	one, found := l[key]
	if !found {
		return &turns{typical: typical}
	}
	delete(l, key)
	return &turns{typical: one.typical, lineEnd: one.end}
}

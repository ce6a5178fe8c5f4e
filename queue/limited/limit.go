package limited

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// Options are the rates of a [Limit]. At least one must be set.
type Options struct {
	// Messages is how many messages may be put, got, peeked at and deleted a second. Defaults to 0, no limit.
	Messages float64

	// Requests is how many requests may be sent a second. Defaults to 0, no limit.
	Requests float64

	// Burst is for how long what is not used is saved up: so much more may be sent at once. At least one
	// message and one request can always be saved up. Defaults to 1 s.
	Burst time.Duration
}

// Limit is a bound on what the queues that it wraps send together. Make one with [New]. It is safe for
// concurrent use.
type Limit struct {
	text  string        // for errors
	grace time.Duration // for how long a claim that is due waits for its queue

	mu       sync.Mutex
	messages bucket  // guarded by mu
	requests bucket  // guarded by mu
	claims   []claim // of queues whose dequeue was held back; guarded by mu
}

// claim is the share of a queue whose dequeue was held back: it is taken already, so that enqueues,
// which wait for their turn, do not take it each time.
type claim struct {
	of       *limited
	messages int
	due      time.Time // when it may be used
}

// New returns a limit. It fails if the rates are negative, not numbers, or both zero.
func New(o *Options) (*Limit, error) {
	if o == nil {
		o = &Options{}
	}
	var parts []string
	for _, one := range []struct {
		name string
		rate float64
	}{{"Messages", o.Messages}, {"Requests", o.Requests}} {
		if one.rate < 0 || math.IsNaN(one.rate) || math.IsInf(one.rate, 0) {
			return nil, fmt.Errorf("limited: Options.%s is %v: give a number a second, or 0 for no limit", one.name, one.rate)
		}
		if one.rate > 0 {
			parts = append(parts, fmt.Sprintf("%v %s", one.rate, strings.ToLower(one.name)))
		}
	}
	switch {
	case len(parts) == 0:
		return nil, fmt.Errorf("limited: set Options.Messages or Options.Requests: neither is a limit")
	case o.Burst < 0:
		return nil, fmt.Errorf("limited: Options.Burst is %v: it must not be negative", o.Burst)
	}
	burst := o.Burst
	if burst == 0 {
		burst = time.Second
	}
	grace := min(burst/4, maxGrace)
	burst -= grace // so much more comes together if a claim is used late
	return &Limit{
		text:     strings.Join(parts, " and ") + " a second",
		grace:    grace,
		messages: newBucket(o.Messages, burst), requests: newBucket(o.Requests, burst),
	}, nil
}

// maxGrace is longer than listeners are late.
const maxGrace = 250 * time.Millisecond

// fetch takes what a dequeue of up to n messages needs and returns how many it may ask for, or how long it
// must wait.
func (l *Limit) fetch(q *limited, n int) (allowed int, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if i := l.claimOf(q); i >= 0 {
		c := l.claims[i]
		if wait = c.due.Sub(now); wait > 0 {
			return 0, wait
		}
		l.unclaim(now, i)
		if unused := c.messages - n; unused > 0 {
			l.messages.giveBack(now, unused)
		}
		return min(n, c.messages), 0
	}
	n = l.messages.most(n)
	wait = max(l.messages.wait(now, n), l.requests.wait(now, 1))
	l.messages.take(now, n)
	l.requests.take(now, 1)
	if wait > 0 {
		l.claims = append(l.claims, claim{q, n, now.Add(wait)})
		l.messages.await(n)
		l.requests.await(1)
		return 0, wait
	}
	return n, 0
}

// expire gives back claims whose queues did not come. Requires mu.
func (l *Limit) expire(now time.Time) {
	for i := 0; i < len(l.claims); {
		c := l.claims[i]
		if now.Before(c.due.Add(l.grace)) {
			i++
			continue
		}
		l.unclaim(now, i)
		l.messages.giveBack(now, c.messages)
		l.requests.giveBack(now, 1)
	}
}

// unclaim removes a claim. Requires mu.
func (l *Limit) unclaim(now time.Time, i int) {
	l.messages.served(now, l.claims[i].messages)
	l.requests.served(now, 1)
	l.claims = slices.Delete(l.claims, i, i+1)
}

// claimOf returns the index of the claim of a queue, or -1. Requires mu.
func (l *Limit) claimOf(q *limited) int {
	return slices.IndexFunc(l.claims, func(c claim) bool { return c.of == q })
}

// send takes a request with a message, and waits until it may be sent or ctx ends. It fails at once if ctx
// will end before that.
func (l *Limit) send(ctx context.Context, name queue.Name) error {
	l.mu.Lock()
	now := l.now()
	wait := max(l.messages.wait(now, 1), l.requests.wait(now, 1))
	if deadline, ok := ctx.Deadline(); ok && wait > 0 && deadline.Before(now.Add(wait)) {
		l.mu.Unlock()
		return l.heldBack("enqueue", name, wait)
	}
	l.messages.take(now, 1)
	l.requests.take(now, 1)
	if wait == 0 {
		l.mu.Unlock()
		return nil
	}
	l.messages.await(1)
	l.requests.await(1)
	l.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		l.endWait()
		return nil
	case <-ctx.Done():
		l.endWait()
		l.unused(1, 1)
		return queue.Explain(ctx.Err(), "enqueue", name, "")
	}
}

// endWait records that an enqueue has had its turn, or has given it up.
func (l *Limit) endWait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.messages.served(now, 1)
	l.requests.served(now, 1)
}

// now returns the time, after what it has brought. Requires mu.
func (l *Limit) now() time.Time {
	now := time.Now()
	l.expire(now)
	return now
}

// heldBack returns the error of a request that must wait.
func (l *Limit) heldBack(op string, name queue.Name, wait time.Duration) error {
	return &queue.LimitedError{Op: op, Queue: name, After: wait, Limit: l.text}
}

// charge takes a request that is sent without waiting, and its messages.
func (l *Limit) charge(messages int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.messages.charge(now, messages)
	l.requests.charge(now, 1)
}

// unused gives back what was taken and not sent.
func (l *Limit) unused(messages, requests int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.messages.giveBack(now, messages)
	l.requests.giveBack(now, requests)
}

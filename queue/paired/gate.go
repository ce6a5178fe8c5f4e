package paired

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/waiting"
)

// gate holds messages back while the primary queue is busy, so that it refuses few of them: each of these waits
// for 10 s and more. The first refusal closes the gate. Then one message at a time is a probe, until one is
// accepted. The others follow at the rate at which the queue accepted messages between the last two refusals,
// because that is its limit. The rate grows, first slowly, until the next refusal. It ends when no message has
// waited for 100 ms. No message waits for it longer than a second, because a queue that refuses messages at
// random would accept more.
type gate struct {
	head chan struct{} // has a buffer of one: held by the message that goes next

	mu       sync.Mutex
	closed   bool           // since the last refusal no probe was accepted; guarded by mu
	refusals int            // of probes, in a row; guarded by mu
	probing  time.Time      // start of the probe under way, zero if there is none; guarded by mu
	due      time.Time      // the next message may begin; guarded by mu
	rate     float64        // messages a second when it opens, 0 for no limit; guarded by mu
	opened   time.Time      // the last time; guarded by mu
	accepted int            // messages since then; guarded by mu
	changed  waiting.Change // the head need not wait any longer; guarded by mu
}

const (
	firstProbe = 100 * time.Millisecond // after the first refusal; later waits double, up to retry.MaxWait
	firstRate  = 1000                   // messages a second, until two refusals have shown the limit
	twiceAfter = 30 * time.Second       // the rate is twice as high
	patience   = time.Second            // of a message with the rate
)

// holds reports whether messages wait for their turn.
func (g *gate) holds() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed || g.rate > 0
}

// enter waits until a message may be sent, and reports whether it is the probe. It reports false for ok if ctx
// ends before. Otherwise the caller calls left with the result.
func (g *gate) enter(ctx context.Context) (probe, ok bool) {
	came := time.Now()
	select {
	case g.head <- struct{}{}:
	case <-ctx.Done():
		return false, false
	}
	defer func() { <-g.head }()
	for ctx.Err() == nil {
		probe, wait, changed := g.next(time.Now(), came)
		if wait <= 0 {
			return probe, true
		}
		waiting.ForChange(wait, changed, ctx.Done())
	}
	return false, false
}

// next lets the head begin, or returns how long it waits, unless changed is closed before.
func (g *gate) next(now, came time.Time) (probe bool, wait time.Duration, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	due := g.due
	switch {
	case g.closed && !g.probing.IsZero():
		due = g.probing.Add(minTry)
	case !g.closed && due.After(came.Add(patience)):
		due = came.Add(patience)
	}
	switch {
	case now.Before(due):
		return false, due.Sub(now), g.changed.Next()
	case g.closed && g.probing.IsZero():
		g.probing = now
		return true, 0, nil
	case g.closed: // a busy queue would have said so: this one hangs, which the others have to find out
		g.open(now)
	}
	if now.Sub(g.due) >= firstProbe {
		g.rate = 0
	}
	if g.rate > 0 && !now.Before(g.due) {
		grown := float64(now.Sub(g.opened)) / float64(twiceAfter)
		g.due = g.due.Add(time.Duration(float64(time.Second) / (g.rate * (1 + grown*grown))))
	}
	return false, 0, nil
}

// left takes the verdict of a request, and whether the queue is failed over.
func (g *gate) left(probe bool, begun time.Time, v verdict, failedOver bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	late := begun.Before(g.opened) // says nothing of the time since
	if probe = probe && !late; probe {
		g.probing = time.Time{}
		g.changed.Announce()
	}
	switch {
	case failedOver: // messages go to the backlog queues
		g.open(now)
		g.rate = 0
	case v == busy && g.closed && probe:
		g.refusals++
		g.due = now.Add(waiting.Doubled(firstProbe, g.refusals, retry.MaxWait))
	case v == busy && !g.closed && !late:
		g.close(now)
	case v == busy:
	case probe && v != refused && v != limited: // after these the next message is the probe
		g.open(now) // also if it failed: the queue is not busy
	}
	if v == accepted {
		g.accepted++
	}
}

// close takes the first refusal. What the queue did not accept in the wait for a probe is part of its limit. Requires mu.
func (g *gate) close(now time.Time) {
	if g.rate > 0 {
		g.rate = max(float64(g.accepted)/(now.Sub(g.opened)+firstProbe).Seconds(), 1)
	} else {
		g.rate = firstRate
	}
	g.closed, g.refusals = true, 0
	g.due = now.Add(firstProbe)
}

// open lets the others follow. Requires mu.
func (g *gate) open(now time.Time) {
	g.closed, g.probing, g.accepted = false, time.Time{}, 0
	g.opened, g.due = now, now
	g.changed.Announce()
}

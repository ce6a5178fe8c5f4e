package paired

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

// gate holds messages back while the primary queue is busy, so that few are refused: each that is refused
// waits for 10 s and more. The first refusal closes it. Then one message at a time is a probe, and when one
// is accepted the others follow, a little slower than the queue accepted them before. That pace grows by 1 %
// a second, and is free after 30 s without a refusal.
type gate struct {
	turn chan struct{} // has a buffer of one: held by the message that waits for the time, or by the probe

	mu       sync.Mutex
	closed   bool          // since the last refusal no probe was accepted; guarded by mu
	pause    time.Duration // before the next probe; guarded by mu
	due      time.Time     // the next message may begin, as the probe while it is closed; guarded by mu
	every    time.Duration // between two messages; 0 while the pace is free; guarded by mu
	refused  time.Time     // the last time that it closed; guarded by mu
	grown    time.Time     // when the pace last grew; guarded by mu
	since    time.Time     // start of the count, without the time that it was closed since; guarded by mu
	accepted int           // messages since then; guarded by mu
	before   int           // in the second before, while the pace is free; guarded by mu
}

const (
	firstProbe = 100 * time.Millisecond
	minCount   = time.Second      // a count of less time tells no rate
	paceFree   = 30 * time.Second // without a refusal
)

// enter waits until a message may be sent, and reports whether it is the probe. It reports false for ok if ctx
// ends before. While skip reports true nobody waits. The caller calls left afterwards.
func (g *gate) enter(ctx context.Context, skip func() bool) (probe, ok bool) {
	if !g.holds() {
		return false, true
	}
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return false, false
	}
	for {
		probe, wait := g.next(time.Now())
		switch {
		case wait > 0 && !skip():
			if !waiting.For(min(wait, time.Second), ctx.Done()) { // others may fail over meanwhile
				<-g.turn
				return false, false
			}
			continue
		case wait > 0 || !probe:
			<-g.turn
			return false, true
		}
		return true, true
	}
}

func (g *gate) holds() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed || g.every > 0
}

// next takes the turn of a message if it has come, or returns how long it waits.
func (g *gate) next(now time.Time) (probe bool, wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if wait = g.due.Sub(now); wait > 0 {
		return g.closed, wait
	}
	if !g.closed && g.every > 0 { // who is a little late takes nothing from the others
		g.due = latest(g.due, now.Add(-firstProbe)).Add(g.every)
	}
	return g.closed, 0
}

// left takes the verdict of a request. A probe that fails opens the gate too: the queue is not busy then. After one
// that says nothing of the queue the next message is the probe.
func (g *gate) left(probe bool, begun time.Time, v verdict) {
	if probe {
		defer func() { <-g.turn }()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	switch {
	case v == busy && g.closed:
		if probe {
			g.pause = min(2*g.pause, busyWait)
			g.due = now.Add(g.pause)
		}
	case v == busy && begun.After(g.refused):
		g.close(now)
	case v == busy: // its request began before the gate closed the last time
	case probe && (v == refused || v == limited):
		g.due = now
	case probe:
		g.closed, g.due = false, now
		g.since = g.since.Add(now.Sub(g.refused))
		g.grown = now
	}
	if v == accepted {
		g.count(now)
	}
}

// close takes a refusal at the present pace. Requires mu.
func (g *gate) close(now time.Time) {
	counted := now.Sub(g.since)
	switch n := max(g.accepted, g.before); {
	case g.every > 0 && counted < minCount:
		g.every += g.every / 20
	case n == 0:
		g.every = firstProbe
		g.restart(now)
	default:
		g.every = max(counted, minCount) * 51 / 50 / time.Duration(n)
		g.restart(now)
	}
	g.closed, g.pause, g.refused = true, firstProbe, now
	g.due = now.Add(g.pause)
}

// count counts a message that was accepted. Requires mu.
func (g *gate) count(now time.Time) {
	g.accepted++
	switch {
	case g.closed:
	case g.every > 0 && now.Sub(g.refused) >= paceFree:
		g.every = 0
		g.restart(now)
	case g.every > 0:
		g.every -= time.Duration(float64(g.every) * min(now.Sub(g.grown).Seconds(), 1) / 100)
		g.grown = now
	case now.Sub(g.since) >= minCount:
		n := g.accepted
		g.restart(now)
		g.before = n
	}
}

// restart starts the count anew. Requires mu.
func (g *gate) restart(now time.Time) { g.since, g.accepted, g.before = now, 0, 0 }

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

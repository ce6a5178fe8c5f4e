// Package hook calls functions that are a user's: a panic in one, or a call of
// runtime.Goexit, as t.FailNow is, must neither end the process nor what the caller has
// yet to do. Both are told, and of a flood only some.
package hook

import (
	"runtime/debug"
	"sync"
	"time"
)

// Quiet is how long after a failure of a hook the next one of the same hook is told.
const ReportInterval = 10 * time.Second

// Failure is a hook that did not return.
type Failure struct {
	Hook  string // its name
	Value any    // what was passed to panic; nil if it called runtime.Goexit
	Stack []byte // the goroutine's stack at that point
	Times int    // how often it failed since it was last told, this time included
}

// Caught describes a panic to the deferred call that recovered its value.
func Caught(name string, value any) Failure {
	return Failure{Hook: name, Value: value, Stack: debug.Stack(), Times: 1}
}

// Guard calls the hooks of one component. It is safe for concurrent use.
type Guard struct {
	report func(Failure)

	mu       sync.Mutex
	reported map[string]*record // guarded by mu
}

// record is what is known of a hook that has failed.
type record struct {
	next  time.Time // when it may be told again
	times int       // failures since it was told
}

// New returns a guard that tells of failures. Tell must not panic.
func New(report func(Failure)) *Guard {
	return &Guard{report: report, reported: make(map[string]*record)}
}

// Call calls f on this goroutine. A panic ends there. runtime.Goexit cannot be stopped: it
// is told, and runs the deferred calls of those who called Call, who leave to them what
// must be done all the same.
func (g *Guard) Call(name string, f func()) {
	returned := false
	defer func() {
		if p := recover(); p != nil || !returned {
			g.failed(Caught(name, p))
		}
	}()
	f()
	returned = true
}

// Contain calls f on a goroutine of its own and waits for it, so that runtime.Goexit ends
// there as well. It tells whether f returned; if not, what f set must not be used.
func (g *Guard) Contain(name string, f func()) (returned bool) {
	failure := Run(f)
	if failure != nil {
		failure.Hook = name
		g.failed(*failure)
	}
	return failure == nil
}

// Run calls f on a goroutine of its own, waits for it, and returns nil if it returned.
// Nobody is told.
func Run(f func()) *Failure {
	done := make(chan *Failure, 1)
	go func() { // ends with f, for which Run waits
		returned := false
		defer func() {
			if p := recover(); p != nil || !returned {
				failure := Caught("", p)
				done <- &failure
				return
			}
			done <- nil
		}()
		f()
		returned = true
	}()
	return <-done
}

// failed tells of a failure, unless the same hook's was told a moment ago.
func (g *Guard) failed(f Failure) {
	g.mu.Lock()
	r := g.reported[f.Hook]
	if r == nil {
		r = &record{}
		g.reported[f.Hook] = r
	}
	r.times++
	now := time.Now()
	if now.Before(r.next) {
		g.mu.Unlock()
		return
	}
	f.Times = r.times
	*r = record{next: now.Add(ReportInterval)}
	g.mu.Unlock()
	g.report(f)
}

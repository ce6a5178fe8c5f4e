// Package hook calls functions of users. A panic in one, or a call of runtime.Goexit, as
// t.FailNow makes, ends neither the process nor the work of the caller. Failures are reported,
// at a limited rate.
package hook

import (
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// ReportInterval is how long after a report further failures of the same hook are not reported.
const ReportInterval = 10 * time.Second

// maxCallers bounds how many program counters of a stack are kept.
const maxCallers = 64

// Failure is a hook call that did not return.
type Failure struct {
	Hook    string    // its name
	Value   any       // what was passed to panic; nil if it called runtime.Goexit
	Stack   []byte    // the goroutine's stack at that point
	Callers []uintptr // its program counters, at most maxCallers
	Times   int       // failures since the last report, this one included
}

// Caught returns the failure for a panic, for the deferred call that recovered value.
func Caught(name string, value any) Failure {
	callers := make([]uintptr, maxCallers)
	callers = callers[:runtime.Callers(0, callers)]
	return Failure{Hook: name, Value: value, Stack: debug.Stack(), Callers: callers, Times: 1}
}

// Guard calls the hooks of one component. It is safe for concurrent use.
type Guard struct {
	report func(Failure)

	mu       sync.Mutex
	reported map[string]*record // guarded by mu
}

// record is the state of a hook that has failed.
type record struct {
	next  time.Time // when it may be reported again
	times int       // failures since the last report
}

// New returns a guard that calls report with failures. Report must not panic.
func New(report func(Failure)) *Guard {
	return &Guard{report: report, reported: make(map[string]*record)}
}

// Call calls f on this goroutine. A panic ends in Call. runtime.Goexit cannot be stopped: it is
// reported, and then runs only the deferred calls of the callers: what must always happen has to be
// in deferred calls.
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

// Contain calls f on a goroutine of its own and waits for it, so that runtime.Goexit ends there
// too. It reports whether f returned; if not, what f assigned must not be used.
func (g *Guard) Contain(name string, f func()) (returned bool) {
	failure := Run(f)
	if failure != nil {
		failure.Hook = name
		g.failed(*failure)
	}
	return failure == nil
}

// Run calls f on a goroutine of its own, waits for it, and returns nil if it returned. It does
// not report failures.
func Run(f func()) *Failure {
	done := make(chan *Failure, 1)
	go func() { // ends with f; waited for below
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

// failed reports a failure, unless one of the same hook was reported a moment ago.
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

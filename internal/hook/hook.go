// Package hook calls functions of users. A panic in one ends neither the process nor the work of
// the caller. Failures are reported, at a limited rate.
package hook

import (
	"reflect"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// ReportInterval is how long after a report further failures of the same hook are not reported.
const ReportInterval = 10 * time.Second

// maxCallers bounds how many program counters of a stack are kept.
const maxCallers = 64

// Failure is a hook call that panicked.
type Failure struct {
	Hook    string    // its name
	Value   any       // passed to panic
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

// Call calls f, reports a panic in it, and returns whether f returned. If not, what f assigned must
// not be used.
func (g *Guard) Call(name string, f func()) (returned bool) {
	failure := Run(f)
	if failure != nil {
		failure.Hook = name
		g.failed(*failure)
	}
	return failure == nil
}

// Run calls f and returns its panic, or nil. It does not report it.
func Run(f func()) (failure *Failure) {
	defer func() {
		if p := recover(); p != nil {
			caught := Caught("", p)
			failure = &caught
		}
	}()
	f()
	return nil
}

// Guard1 returns the hook with its panics contained, or nil for nil.
func Guard1[A any](g *Guard, name string, f func(A)) func(A) {
	if f == nil {
		return nil
	}
	return func(a A) { g.Call(name, func() { f(a) }) }
}

// Guard2 is [Guard1] for a hook with two parameters.
func Guard2[A, B any](g *Guard, name string, f func(A, B)) func(A, B) {
	if f == nil {
		return nil
	}
	return func(a A, b B) { g.Call(name, func() { f(a, b) }) }
}

// Guard3 is [Guard1] for a hook with three parameters.
func Guard3[A, B, C any](g *Guard, name string, f func(A, B, C)) func(A, B, C) {
	if f == nil {
		return nil
	}
	return func(a A, b B, c C) { g.Call(name, func() { f(a, b, c) }) }
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

// IsNil reports whether v is nil, or an interface that holds a nil pointer, map, slice,
// function or channel, such as an unset pointer variable passed as an interface.
func IsNil(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Func, reflect.Chan:
		return r.IsNil()
	default:
		return false
	}
}

package emulator

import (
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"
)

// Faults are what goes wrong on demand, so that a client can be tried against
// what the service and the network do on bad days. Nil and the zero value mean
// that nothing does. A Server keeps a copy.
type Faults struct {
	// Seed chooses which requests a rule's Rate hits. With the same seed and
	// rules the same sequence of requests meets the same faults, in process
	// and on a socket. Defaults to 0, a seed like any other.
	Seed uint64

	// Rules are what goes wrong with which requests. Each counts the requests
	// of its operation by itself. When several hit one request their delays
	// add up, and the first of the other kinds happens. [New] panics when one
	// of them is not valid; [ParseFaults] only returns valid ones. Defaults
	// to none.
	Rules []Fault
}

// Fault is one rule of [Faults]. A rule hits a request when any of Rate, Every
// and At says so, and every request of its operation when none of them is set.
// Requests that are refused before there is any work, for their address, their
// signature or their limits, are not counted and not hit.
type Fault struct {
	// Operation is whose requests are hit. Neither Preflight nor Unknown can
	// be. Defaults to those of all operations.
	Operation Operation

	// Kind is what happens. It must be given.
	Kind FaultKind

	// Rate is the share of requests that are hit, from 0 to 1, by chance that
	// [Faults].Seed fixes. Defaults to 0, none by chance.
	Rate float64

	// Every hits each request whose number, from 1, it divides. Defaults to 0,
	// none.
	Every int

	// At are the numbers, from 1, of single requests that are hit. Defaults to
	// none.
	At []int

	// Delay is how long a FaultDelay takes; no other kind has one. Past the
	// timeout that the request asks for, 30 s unless it says so, the answer
	// is the service's OperationTimedOut. Defaults to none; a FaultDelay must
	// have one.
	Delay time.Duration
}

// FaultKind is what goes wrong with a request.
type FaultKind string

// The kinds of faults. The codes are those of "Common REST API error codes".
const (
	FaultBusy      FaultKind = "503"       // nothing done, answered 503 ServerBusy
	FaultInternal  FaultKind = "500"       // nothing done, answered 500 InternalError
	FaultTimeout   FaultKind = "timeout"   // nothing done, answered 500 OperationTimedOut, as the service does
	FaultReset     FaultKind = "reset"     // nothing done, the connection closed without an answer
	FaultDrop      FaultKind = "drop"      // done, the connection closed without an answer
	FaultDelay     FaultKind = "delay"     // done, but later
	FaultDuplicate FaultKind = "duplicate" // done twice, as two requests; the second answer is given
)

// faultKinds are all kinds, in the order in which errors name them.
var faultKinds = []FaultKind{FaultBusy, FaultInternal, FaultTimeout, FaultReset, FaultDrop, FaultDelay, FaultDuplicate}

// errBroken is how RoundTrip fails where a socket would be closed.
var errBroken = fmt.Errorf("emulator: a fault on demand broke the connection: %w", io.ErrUnexpectedEOF)

// faults is what decides about requests.
type faults struct {
	seed     uint64
	rules    []Fault                     // never changes
	seen     []atomic.Uint64             // of each rule, how many requests it has counted
	injected map[FaultKind]*atomic.Int64 // the map never changes
}

// newFaults returns nil when there are none.
func newFaults(o *Options) *faults {
	if o == nil || o.Faults == nil || len(o.Faults.Rules) == 0 {
		return nil
	}
	f := &faults{seed: o.Faults.Seed, rules: slices.Clone(o.Faults.Rules), injected: make(map[FaultKind]*atomic.Int64)}
	for i := range f.rules {
		if err := f.rules[i].check(); err != nil {
			panic(fmt.Sprintf("emulator: Options.Faults.Rules[%d]: %v", i, err))
		}
		f.rules[i].At = slices.Clone(f.rules[i].At)
	}
	f.seen = make([]atomic.Uint64, len(f.rules))
	for _, kind := range faultKinds {
		f.injected[kind] = new(atomic.Int64)
	}
	return f
}

// accident is what befalls one request. The zero value is nothing.
type accident struct {
	delay time.Duration
	kind  FaultKind // anything but a delay, or none
}

// decide counts a request with every rule of its operation.
func (f *faults) decide(op Operation) accident {
	var a accident
	for i := range f.rules {
		rule := &f.rules[i]
		if rule.Operation != "" && rule.Operation != op {
			continue
		}
		if !rule.hits(f.seed, uint64(i), f.seen[i].Add(1)) {
			continue
		}
		switch {
		case rule.Kind == FaultDelay:
			a.delay += rule.Delay
			f.injected[FaultDelay].Add(1)
		case a.kind == "":
			a.kind = rule.Kind // counted when it happens, for which a delay may leave no time
		}
	}
	return a
}

// hits reports whether the rule hits its n-th request.
func (f *Fault) hits(seed, index, n uint64) bool {
	switch {
	case f.Rate == 0 && f.Every == 0 && len(f.At) == 0:
		return true
	case f.Every > 0 && n%uint64(f.Every) == 0:
		return true
	case slices.Contains(f.At, int(n)):
		return true
	}
	return chance(seed, index, n) < f.Rate
}

// chance is a number from 0 to below 1 that only depends on its arguments: not
// a generator's next one, which would depend on the order in which the requests
// of different rules come.
func chance(seed, index, n uint64) float64 {
	h := mix(mix(mix(seed)^index) ^ n)
	return float64(h>>11) / (1 << 53)
}

// mix is the output function of SplitMix64 (Steele, Lea and Flood, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// check says what is wrong with a rule.
func (f *Fault) check() error {
	switch {
	case f.Operation != "" && !slices.Contains(operations, f.Operation):
		return badOperation(string(f.Operation))
	case !slices.Contains(faultKinds, f.Kind):
		return badKind(string(f.Kind))
	case !(f.Rate >= 0 && f.Rate <= 1): // nor NaN
		return fmt.Errorf("the rate %v is not a share of requests: give one from 0 to 1", f.Rate)
	case f.Every < 0:
		return fmt.Errorf("every %d-th request is none: give 1 or more, or 0 for no such rule", f.Every)
	case len(f.At) > 0 && slices.Min(f.At) < 1:
		return fmt.Errorf("there is no request number %d: the first is 1", slices.Min(f.At))
	case f.Kind == FaultDelay && f.Delay <= 0:
		return fmt.Errorf("a delay of %v is none: give how long, such as delay=200ms", f.Delay)
	case f.Kind != FaultDelay && f.Delay != 0:
		return fmt.Errorf("the kind %s has no delay: make it a rule of its own, of the kind delay", f.Kind)
	}
	return nil
}

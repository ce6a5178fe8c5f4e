package emulator

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// faultRules are [Faults] at work. Only the counters in them change.
type faultRules struct {
	seed       uint64
	rules      []faultRule
	totalDelay time.Duration // all delays together
}

type faultRule struct {
	Fault
	requests atomic.Int64 // that it was for
}

// newFaultRules returns nil for no rules.
func newFaultRules(f *Faults) (*faultRules, error) {
	if f == nil || len(f.Rules) == 0 {
		return nil, nil
	}
	r := &faultRules{seed: f.Seed, rules: make([]faultRule, len(f.Rules))}
	for i, rule := range f.Rules {
		if err := rule.check(); err != nil {
			return nil, fmt.Errorf("emulator: Options.Faults: rule %d: %w", i+1, err)
		}
		rule.At = slices.Sorted(slices.Values(rule.At))
		r.rules[i].Fault = rule
		r.totalDelay += rule.Delay
		if r.totalDelay < 0 {
			return nil, fmt.Errorf("emulator: Options.Faults: the delays of %d rules add up to more than there is time", i+1)
		}
	}
	return r, nil
}

// fate is what happens to one request. The zero value is nothing.
type injection struct {
	kind  FaultKind     // but a delay
	delay time.Duration // before the work
}

// decide lets every rule count a request, and returns what happens to it.
func (r *faultRules) decide(op Operation) injection {
	var f injection
	for i := range r.rules {
		rule := &r.rules[i]
		if rule.Operation != "" && rule.Operation != op || !rule.hits(r.seed, i, rule.requests.Add(1)) {
			continue
		}
		switch {
		case rule.Kind == FaultDelay:
			f.delay += rule.Delay
		case f.kind == "":
			f.kind = rule.Kind
		}
	}
	if f.kind == FaultReset || f.response() != nil {
		f.delay = 0 // there is no work that it could be before
	}
	return f
}

// hits reports whether the rule, which is the i-th, hits its n-th request. It is
// a function of its arguments alone, so that it does not matter which goroutine
// throws the dice.
func (r *faultRule) hits(seed uint64, i int, n int64) bool {
	switch {
	case r.Every > 0:
		return n%r.Every == 0
	case len(r.At) > 0:
		_, found := slices.BinarySearch(r.At, n)
		return found
	case r.Rate > 0:
		var dice rand.PCG
		dice.Seed(seed+uint64(i)*0x9e3779b97f4a7c15, uint64(n))
		return float64(dice.Uint64()>>11)/(1<<53) < r.Rate
	}
	return false
}

// What breaks a connection, as a client sees it.
var (
	errReset error = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	errDrop        = fmt.Errorf("emulator: the connection was closed without an answer: %w", io.EOF)
)

// answer is what a fault answers instead of doing what is asked for, or nil.
func (f injection) response() *failure {
	switch f.kind {
	case FaultBusy:
		return errServerBusy
	case FaultInternal:
		return errInternal
	case FaultTimeout:
		return errRequestTimeout
	}
	return nil
}

// longestFault is how much longer than others a request may take.
func (s *Server) totalFaultDelay() time.Duration {
	if s.faults == nil {
		return 0
	}
	return s.faults.totalDelay
}

// meetFate decides what goes wrong with a request. It returns what is answered
// instead of doing it, or with what error the connection breaks, or neither.
func (c *call) injectFault() (*failure, error) {
	c.injection = c.server.faults.decide(c.operation)
	if c.injection == (injection{}) {
		return nil, nil
	}
	c.server.counters.countFault(c.tally, c.injection)
	if c.injection.kind == FaultReset {
		return nil, errReset
	}
	return c.injection.response(), nil
}

// work does what the request asks for, twice when it is to be a duplicate.
func (c *call) runWithFault() *failure {
	if c.injection.kind == FaultDuplicate {
		c.runFirstCopy()
		if c.request.Context().Err() != nil {
			return errTimedOut
		}
	}
	return c.runOnce()
}

func (c *call) runOnce() *failure {
	if c.server.messages != nil {
		return c.handleWithinLimit()
	}
	return c.handle(c)
}

// rehearse is the first copy of a duplicate, whose answer nobody hears. It is
// counted and logged like any other, and leaves no trace in the answer of the
// second, for which the headers must be as they were.
func (c *call) runFirstCopy() {
	before := maps.Clone(c.header)
	f := c.runOnce()
	if f != nil {
		c.status, c.body = f.status, nil
	}
	c.countResponse(f)
	clear(c.header)
	maps.Copy(c.header, before)
	c.status, c.body, c.gotMessages, c.limited = 0, nil, 0, false
	c.tally.requests.Add(1)
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// resetConnection closes the connection with a reset, so that the client reads an
// error and not an end. It is the TCP connection below TLS that closes, for a
// farewell of TLS would be an end.
func resetConnection(ctx context.Context) {
	conn, _ := ctx.Value(connectionKey{}).(net.Conn) // none behind a server of someone else's
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_, _ = tcp.SetLinger(0), tcp.Close() // when they fail it is gone already
	}
}

// String is what goes wrong with a request, such as "delay=1s drop".
func (f injection) String() string {
	if f.delay == 0 {
		return string(f.kind)
	}
	text := string(FaultDelay) + "=" + f.delay.String()
	if f.kind != "" {
		text += " " + string(f.kind)
	}
	return text
}

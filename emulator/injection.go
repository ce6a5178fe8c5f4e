package emulator

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/queuexml"
)

// faultRules are [Faults] with their counters, the only parts that change.
type faultRules struct {
	seed  uint64
	rules []faultRule
}

type faultRule struct {
	Fault
	requests atomic.Int64 // that the rule applied to
}

// newFaultRules returns nil if there are no rules. Errors name the setting that they come from.
func newFaultRules(setting string, f *Faults) (*faultRules, error) {
	if f == nil || len(f.Rules) == 0 {
		return nil, nil
	}
	r := &faultRules{seed: f.Seed, rules: make([]faultRule, len(f.Rules))}
	var total time.Duration
	for i, rule := range f.Rules {
		if err := rule.check(); err != nil {
			return nil, fmt.Errorf("emulator: %s: rule %d: %w", setting, i+1, err)
		}
		rule.At = slices.Sorted(slices.Values(rule.At))
		r.rules[i].Fault = rule
		if total += rule.Delay; total < 0 {
			return nil, fmt.Errorf("emulator: %s: the delays of %d rules add up to more than a duration can be", setting, i+1)
		}
	}
	return r, nil
}

// injection is what goes wrong with one request. The zero value is nothing.
type injection struct {
	kind  FaultKind     // other than a delay
	delay time.Duration // before the request is executed
}

// decide counts a request with every rule, and returns its faults.
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
		f.delay = 0 // the request is not executed
	}
	return f
}

// hits reports whether the i-th rule hits its n-th request. It is a pure function of its
// arguments, so the order of goroutines does not matter.
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

// Errors of a closed connection, as a client sees them.
var (
	errReset error = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	errDrop        = fmt.Errorf("emulator: the connection was closed without a response: %w", io.EOF)
)

// response returns the failure with which a fault replaces the response, or nil.
func (f injection) response() *failure {
	switch f.kind {
	case FaultBusy:
		return errServerBusy
	case FaultInternal:
		return errInternal
	case FaultTimeout:
		return errRequestTimeout
	case FaultForbidden:
		return errAuthorizationFailure
	}
	return nil
}

// injectFault decides the request's faults. It returns the failure to respond with, or the error
// with which the connection is closed, or neither.
//
// While there are faults, our own loop hands every request over. So if it did not, the head of
// this one came before they were set.
func (c *call) injectFault(by entrance) (*failure, error) {
	rules := c.server.faults.Load()
	if rules == nil || by == overPlainHTTP {
		return nil, nil
	}
	c.injection = rules.decide(c.operation)
	if c.injection == (injection{}) {
		return nil, nil
	}
	if c.injection.delay > 0 && by == overNetHTTP {
		// The response may take longer, too; the next request has a new deadline. It fails if the connection
		// is closed, as the response will.
		by := time.Now().Add(requestWithin + c.server.delay + c.injection.delay)
		_ = http.NewResponseController(c.writer).SetWriteDeadline(by)
	}
	c.tally.faults.Add(1)
	if c.injection.kind != "" {
		c.server.counters.faults[c.injection.kind].Add(1)
	}
	if c.injection.delay > 0 {
		c.server.counters.faults[FaultDelay].Add(1)
	}
	if c.injection.kind == FaultReset {
		return nil, errReset
	}
	return c.injection.response(), nil
}

// runWithFault executes the request, twice for a duplicate.
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
		return c.handleWithinQuota()
	}
	return c.verb.handle(c)
}

// runFirstCopy executes the first copy of a duplicate and drops its response. It is counted and
// logged, and restores the headers for the second copy.
func (c *call) runFirstCopy() {
	before := maps.Clone(c.header)
	f := c.runOnce()
	if f != nil {
		c.status, c.body = f.status, nil
	}
	c.countResponse(f)
	clear(c.header)
	maps.Copy(c.header, before)
	c.status, c.body, c.gotMessages, c.overQuota = 0, nil, 0, false
	c.tally.requests.Add(1)
}

// connectionKey is the context key of a request's connection.
type connectionKey struct{}

// String returns the faults of a request, such as "delay=1s drop".
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

// SetFaults replaces the faults of the server, [Options].Faults or those that were set before. Nil, or
// no rules, means none. It fails if a rule is invalid, and then changes nothing.
//
// The new rules apply to every request whose head arrives after SetFaults has returned, on all
// endpoints, connections that are open already included, and in process. Each rule counts
// requests from 1. A request in progress keeps the faults that it has: a delay ends when it would have ended.
//
// It is safe for concurrent use.
func (s *Server) SetFaults(f *Faults) error {
	rules, err := newFaultRules("SetFaults", f)
	if err != nil {
		return err
	}
	s.faults.Store(rules)
	return nil
}

// Faults are read and changed over the wire by requests to an account, with comp=faults: see
// docs/protocol.md. The service has nothing like it and refuses the query. The rules are in the query and not
// in a body, because Shared Key signs no bodies.

// getFaults responds with a line for the seed and one for each rule, or with nothing.
func (c *call) getFaults() *failure {
	c.header["Content-Type"] = []string{"text/plain; charset=utf-8"}
	c.status, c.body = http.StatusOK, c.responseBuffer()
	rules := c.server.faults.Load()
	if rules == nil {
		return nil
	}
	c.body = fmt.Appendf(c.body, "seed %d\n", rules.seed)
	for i := range rules.rules {
		c.body = fmt.Appendf(c.body, "rule %v\n", rules.rules[i].Fault)
	}
	return nil
}

// setFaults replaces the faults by those in the query.
func (c *call) setFaults() *failure {
	text, f := c.query.required("rules")
	if f != nil {
		return f
	}
	rules, err := ParseFaults(text)
	if err != nil {
		return invalidRules(err)
	}
	given, found, f := c.query.get("seed")
	if f != nil {
		return f
	}
	seed := uint64(0)
	if found {
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			return errInvalidQueryValue.ofQuery("seed", shorten(given), "It is not a whole number from 0 to 18446744073709551615.")
		}
	}
	if err := c.server.SetFaults(&Faults{Seed: seed, Rules: rules}); err != nil {
		return invalidRules(err)
	}
	return c.noContent(nil)
}

func (c *call) clearFaults() *failure { return c.noContent(c.server.SetFaults(nil)) }

func invalidRules(err error) *failure {
	return errInvalidQueryValue.because("%s", strings.TrimPrefix(err.Error(), "emulator: ")).
		with(queuexml.Detail{Name: "QueryParameterName", Value: "rules"})
}

package emulator

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/queuexml"
)

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

// routeFaults determines the operation of a request for the faults.
func (c *call) routeFaults() *failure {
	switch c.request.Method {
	case http.MethodGet:
		return c.serve(GetFaults, (*call).getFaults)
	case http.MethodPut:
		return c.serve(SetFaults, (*call).setFaults)
	case http.MethodDelete:
		return c.serve(ClearFaults, (*call).clearFaults)
	}
	return methodNotAllowed("DELETE, GET, PUT")
}

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
	seed, f := c.query.seed()
	if f != nil {
		return f
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

// seed returns the parameter of that name, or 0.
func (q query) seed() (uint64, *failure) {
	text, found, f := q.get("seed")
	if f != nil || !found {
		return 0, f
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, errInvalidQueryValue.with(
			queuexml.Detail{Name: "QueryParameterName", Value: "seed"},
			queuexml.Detail{Name: "QueryParameterValue", Value: shorten(text)},
			queuexml.Detail{Name: "Reason", Value: "It is not a whole number from 0 to 18446744073709551615."})
	}
	return n, nil
}

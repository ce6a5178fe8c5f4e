package emulator

import (
	"fmt"
	"strconv"
	"strings"
)

// Limits are how much a second is served before it is 503 ServerBusy. Microsoft's
// targets (Scalability and performance targets for Queue Storage) are 2,000
// messages of 1 KiB a second for a queue and 20,000 for an account. The zero
// value is no limits.
//
// A second's worth can be saved up: after a pause of a second that much passes at
// once, and then as much as time passes. The answer has no Retry-After header,
// which no document promises for queues.
type Limits struct {
	// Messages is how many messages of one queue may be put, got or deleted a
	// second. A put or a delete that fails counts as one that does not, and a
	// get as the messages that it brings; it is refused only when not even one
	// is left, and what it takes too much is missing later. At most a billion.
	// Defaults to 0: no limit.
	Messages int

	// Requests is how many requests of one account are served a second, its
	// secondary location included. Requests that are not authorized take
	// none, and so keep nobody out; preflights take none either. At most a
	// billion. Defaults to 0: no limit.
	Requests int
}

// highestLimit keeps the levels of buckets within an int64.
const maxLimitValue = 1_000_000_000

// ParseLimits reads limits from a text such as
//
//	messages=2000,requests=20000
//
// separated by commas, semicolons or blanks, each at most once. What is left out
// or 0 has no limit. The error names the piece that is wrong, and what would be
// right.
func ParseLimits(text string) (Limits, error) {
	var l Limits
	seen := map[string]bool{}
	for piece := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(",; \t\r\n", r) }) {
		name, value, ok := strings.Cut(piece, "=")
		name = strings.ToLower(name)
		into := map[string]*int{"messages": &l.Messages, "requests": &l.Requests}[name]
		switch {
		case into == nil || !ok:
			return Limits{}, fmt.Errorf("emulator: limit %s: write messages=2000 (a second and queue) or requests=20000 (a second and account)", quoteShort(piece))
		case seen[name]:
			return Limits{}, fmt.Errorf("emulator: limit %s: %s is there twice: leave one out", quoteShort(piece), name)
		}
		seen[name] = true
		n, err := strconv.Atoi(value)
		if err != nil || !isDigits(value) || n > maxLimitValue {
			return Limits{}, fmt.Errorf("emulator: limit %s: %s is no number from 0 to %d", quoteShort(piece), quoteShort(value), maxLimitValue)
		}
		*into = n
	}
	return l, nil
}

// String returns the limits as [ParseLimits] reads them; no limits are "".
func (l Limits) String() string {
	var pieces []string
	if l.Messages != 0 {
		pieces = append(pieces, "messages="+strconv.Itoa(l.Messages))
	}
	if l.Requests != 0 {
		pieces = append(pieces, "requests="+strconv.Itoa(l.Requests))
	}
	return strings.Join(pieces, ",")
}

func (l Limits) check() error {
	for _, one := range []struct {
		name  string
		value int
	}{{"Messages", l.Messages}, {"Requests", l.Requests}} {
		if one.value < 0 || one.value > maxLimitValue {
			return fmt.Errorf("emulator: Options.Limits.%s is %d: it is 0 to %d", one.name, one.value, maxLimitValue)
		}
	}
	return nil
}

// admit takes a request out of what its account has left.
func (c *call) checkRequestLimit() *failure {
	if c.accountState.requests == nil || c.accountState.requests.take() {
		return nil
	}
	c.refusedByLimit()
	return errAccountBusy
}

// handleWithinLimit carries out the operation, and takes the messages that it
// moves out of what its queue has left.
func (c *call) handleWithinLimit() *failure {
	switch c.operation {
	case PutMessage, GetMessages, DeleteMessage:
	default:
		return c.handle(c)
	}
	b := c.server.messages.of(c.name())
	if !b.take() {
		c.refusedByLimit()
		return errServerBusy
	}
	f := c.handle(c)
	if c.operation == GetMessages {
		b.charge(c.gotMessages - 1) // one is taken; none were got when it failed
	}
	return f
}

func (c *call) refusedByLimit() {
	c.limited = true
	c.server.counters.limited.Add(1)
}

package metered

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Tally counts requests and how they ended. The zero value is none. All requests without an error are
// those that are in none of Throttled, Unreached and Failed.
type Tally struct {
	Requests  int64 `json:"requests"`            // all of them, the repeated ones too
	Repeated  int64 `json:"repeated,omitempty"`  // sent again because the request before failed
	Empty     int64 `json:"empty,omitempty"`     // dequeues that found no message
	Throttled int64 `json:"throttled,omitempty"` // refused because the service was busy
	Unreached int64 `json:"unreached,omitempty"` // the service was not reached, or there was no token to ask it with
	Failed    int64 `json:"failed,omitempty"`    // any other error, but not that a poison queue does not exist yet
	Messages  int64 `json:"messages,omitempty"`  // that dequeues returned
}

// add adds requests with one outcome, first ones and repeated ones.
func (t *Tally) add(got outcome, first, repeated int64) {
	n := first + repeated
	t.Requests += n
	t.Repeated += repeated
	switch got {
	case empty:
		t.Empty += n
	case throttled:
		t.Throttled += n
	case unreached:
		t.Unreached += n
	case failed:
		t.Failed += n
	}
}

// Plus returns the sum of two tallies.
func (t Tally) Plus(u Tally) Tally {
	return Tally{
		t.Requests + u.Requests, t.Repeated + u.Repeated, t.Empty + u.Empty, t.Throttled + u.Throttled,
		t.Unreached + u.Unreached, t.Failed + u.Failed, t.Messages + u.Messages,
	}
}

// Minus returns the difference of two tallies.
func (t Tally) Minus(u Tally) Tally {
	return Tally{
		t.Requests - u.Requests, t.Repeated - u.Repeated, t.Empty - u.Empty, t.Throttled - u.Throttled,
		t.Unreached - u.Unreached, t.Failed - u.Failed, t.Messages - u.Messages,
	}
}

// Billed returns how many of the requests are billed: all that the service answered or may have
// received. Microsoft lists throttled requests as not billed (Storage Analytics Logged Operations and
// Status Messages: ThrottlingError).
func (t Tally) Billed() int64 { return t.Requests - t.Throttled - t.Unreached }

// Line is the tally of one operation with one cause.
type Line struct {
	Operation Operation `json:"operation"`
	Cause     Cause     `json:"cause"`
	Tally
}

// Counts are the requests that a [Meter] counted, with a line for each operation and cause that had
// any, ordered by them. Nil is none. Their JSON form is a list of the lines.
type Counts []Line

// Total returns the tally of all requests.
func (c Counts) Total() Tally { return c.sum(func(Line) bool { return true }) }

// Cause returns the tally of the requests with this cause.
func (c Counts) Cause(cause Cause) Tally {
	return c.sum(func(l Line) bool { return l.Cause == cause })
}

// Operation returns the tally of the requests of this operation.
func (c Counts) Operation(o Operation) Tally {
	return c.sum(func(l Line) bool { return l.Operation == o })
}

func (c Counts) sum(chosen func(Line) bool) (sum Tally) {
	for _, line := range c {
		if chosen(line) {
			sum = sum.Plus(line.Tally)
		}
	}
	return sum
}

// Minus returns what was counted between two snapshots of a meter, of which c is the later.
func (c Counts) Minus(earlier Counts) Counts { return c.merge(earlier, Tally.Minus) }

// Plus returns the counts of two meters together.
func (c Counts) Plus(other Counts) Counts { return c.merge(other, Tally.Plus) }

// merge combines lines of the same operation and cause; a line that one side lacks is zero there.
func (c Counts) merge(other Counts, combine func(a, b Tally) Tally) (merged Counts) {
	add := func(l Line) {
		if l.Tally != (Tally{}) {
			merged = append(merged, l)
		}
	}
	for len(c) > 0 || len(other) > 0 {
		switch order := compare(c, other); {
		case order < 0:
			add(c[0])
			c = c[1:]
		case order > 0:
			add(Line{other[0].Operation, other[0].Cause, combine(Tally{}, other[0].Tally)})
			other = other[1:]
		default:
			add(Line{c[0].Operation, c[0].Cause, combine(c[0].Tally, other[0].Tally)})
			c, other = c[1:], other[1:]
		}
	}
	return merged
}

// compare says which of the first lines comes first.
func compare(a, b Counts) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return cmp.Or(cmp.Compare(a[0].Operation, b[0].Operation), cmp.Compare(a[0].Cause, b[0].Cause))
}

// String returns the requests by cause on one line, the most frequent first, and what was not as it
// should be, such as "8 delete, 4 fetch (1 empty); 2 repeated, 1 throttled". It is "none" if there were
// none.
func (c Counts) String() string {
	var b strings.Builder
	separator := ""
	for _, cause := range c.causes() {
		t := c.Cause(cause)
		fmt.Fprintf(&b, "%s%d %v", separator, t.Requests, cause)
		if t.Empty > 0 {
			fmt.Fprintf(&b, " (%d empty)", t.Empty)
		}
		separator = ", "
	}
	if separator == "" {
		return "none"
	}
	total := c.Total()
	separator = "; "
	for _, one := range []struct {
		name  string
		count int64
	}{{"repeated", total.Repeated}, {"throttled", total.Throttled}, {"unreached", total.Unreached}, {"failed", total.Failed}} {
		if one.count != 0 {
			fmt.Fprintf(&b, "%s%d %s", separator, one.count, one.name)
			separator = ", "
		}
	}
	return b.String()
}

// causes returns the causes that had requests, the most frequent first.
func (c Counts) causes() []Cause {
	var causes []Cause
	for _, cause := range Causes() {
		if c.Cause(cause).Requests != 0 {
			causes = append(causes, cause)
		}
	}
	slices.SortStableFunc(causes, func(a, b Cause) int {
		return cmp.Compare(c.Cause(b).Requests, c.Cause(a).Requests)
	})
	return causes
}

// DefaultUnit is for how many requests a [Price] is quoted unless it says otherwise.
const DefaultUnit = 10_000

// Price is what requests cost, in any currency. Prices differ by region and redundancy and change, so
// none is built in: the zero Price means that the price is unknown.
type Price struct {
	// Class1 is the price of Unit requests of class 1. Zero means that the price is unknown.
	Class1 float64 `json:"class1"`

	// Class2 is the price of Unit requests of class 2. Defaults to Class1.
	Class2 float64 `json:"class2,omitempty"`

	// Unit is for how many requests the prices are quoted. Defaults to 10,000.
	Unit int64 `json:"unit,omitempty"`

	// Class2Operations are the operations of class 2; all others are of class 1. The price sheet says
	// which they are. Defaults to Peek and Properties, which change nothing.
	Class2Operations []Operation `json:"class2Operations,omitempty"`
}

// Of returns the price of one request of the operation, 0 if it is unknown.
func (p Price) Of(o Operation) float64 {
	if p.Class1 <= 0 {
		return 0
	}
	unit, second, price := p.Unit, p.Class2Operations, p.Class1
	if unit <= 0 {
		unit = DefaultUnit
	}
	if second == nil {
		second = []Operation{Peek, Properties}
	}
	if p.Class2 > 0 && slices.Contains(second, o) {
		price = p.Class2
	}
	return price / float64(unit)
}

// Cost returns what the requests cost at this price, and false if the price is unknown. It charges
// what [Tally.Billed] counts.
func (c Counts) Cost(p Price) (cost float64, known bool) {
	for _, line := range c {
		cost += float64(line.Billed()) * p.Of(line.Operation)
	}
	return cost, p.Class1 > 0
}

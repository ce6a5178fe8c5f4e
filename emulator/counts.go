package emulator

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"text/tabwriter"
)

// Counts count the requests since a [Server] was created. The zero value is none. [Counts.String]
// formats them as a table.
type Counts struct {
	// Operations is the number of requests by operation, successful or not. Operations without
	// requests are omitted.
	Operations map[Operation]int64

	// Tallies are the outcomes by operation.
	Tallies map[Operation]Tally

	// Statuses is the number of responses by class: 2 for 2xx and so on. Requests that the client
	// abandoned, or whose connection a fault closed, have no response.
	Statuses map[int]int64

	// Faults is the number of requests with a fault, by kind. A request with a delay and another
	// fault counts with both. Kinds without requests are omitted.
	Faults map[FaultKind]int64

	// OverQuota is the number of requests refused because of [Options].Quotas.
	OverQuota int64

	// Busy is the number of 503 responses, from faults and quotas. They are included in the other
	// counts, but Microsoft lists them as not billed (Storage Analytics Logged Operations and
	// Status Messages: ThrottlingError).
	Busy int64

	// EmptyGets is the number of successful GetMessages without a message: polls that are billed
	// for nothing.
	EmptyGets int64

	// Messages is the number of messages that GetMessages has returned, including those in
	// responses that a fault dropped.
	Messages int64
}

// Tally is the outcome of one operation's requests. The zero value is none.
type Tally struct {
	// Responses is the number of responses by class: Responses[2] is 2xx. Requests in progress,
	// abandoned by the client, or whose connection a fault closed are not included.
	Responses [6]int64

	// Faults is the number of requests with a fault.
	Faults int64

	// Received and Sent are the bytes of request bodies that were read and of response bodies,
	// without headers.
	Received, Sent int64
}

// Requests returns the total number of requests: the transactions of a bill. Those of wake-up streams
// ([OpenWakeups], [ReadyWakeups]) and of the faults ([GetFaults], [SetFaults], [ClearFaults]) are not included.
func (c Counts) Requests() int64 {
	var sum int64
	for op, n := range c.Operations {
		if op.isBilled() {
			sum += n
		}
	}
	return sum
}

// String formats the counts as a table with a line for each operation and the totals. Below are
// wake-up streams, changes of the faults, empty gets, faults and 503 responses, if any. It ends with a line break.
func (c Counts) String() string {
	var b, table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	writeRow(w, "operation", "requests", "2xx", "4xx", "5xx", "no response", "faults", "bytes in", "bytes out")
	var sum Tally
	for _, op := range operations {
		if n := c.Operations[op]; n > 0 && op.isBilled() {
			t := c.Tallies[op]
			t.row(w, string(op), n)
			sum.add(t)
		}
	}
	sum.row(w, "transactions", c.Requests())
	for _, op := range operations {
		if n := c.Operations[op]; n > 0 && !op.isBilled() {
			c.Tallies[op].row(w, string(op), n)
		}
	}
	_ = w.Flush()
	for line := range strings.Lines(table.String()) {
		b.WriteString(strings.TrimPrefix(line, "  ")) // the padding before the first column
	}
	fmt.Fprintf(&b, "messages got: %d; gets that found none: %d\n", c.Messages, c.EmptyGets)
	if len(c.Faults) > 0 {
		b.WriteString("faults:")
		for _, kind := range faultKinds {
			if n := c.Faults[kind]; n > 0 {
				fmt.Fprintf(&b, " %s %d", kind, n)
			}
		}
		b.WriteString("\n")
	}
	if c.Busy > 0 {
		fmt.Fprintf(&b, "503, which the service does not bill: %d; over a quota: %d\n", c.Busy, c.OverQuota)
	}
	return b.String()
}

func (t Tally) row(w io.Writer, name string, requests int64) {
	a := t.Responses
	unanswered := requests - a[1] - a[2] - a[3] - a[4] - a[5]
	writeRow(w, name, requests, a[2], a[4], a[5], unanswered, t.Faults, t.Received, t.Sent)
}

// writeRow writes a left-aligned name and its numbers.
func writeRow(w io.Writer, name string, cells ...any) {
	line := fmt.Sprintf("%-*s\t", len(SetServiceProperties), name)
	for _, cell := range cells {
		line += fmt.Sprint(cell, "\t")
	}
	_, _ = io.WriteString(w, line+"\n") // a strings.Builder takes everything
}

func (t *Tally) add(other Tally) {
	for class := range t.Responses {
		t.Responses[class] += other.Responses[class]
	}
	t.Faults += other.Faults
	t.Received += other.Received
	t.Sent += other.Sent
}

// counters are the source of [Counts]. They are separate atomics: a snapshot during requests may
// be inconsistent by a few requests.
type counters struct {
	operations map[Operation]*tally        // the map never changes
	faults     map[FaultKind]*atomic.Int64 // the map never changes
	overQuota  atomic.Int64
	busy       atomic.Int64
	emptyGets  atomic.Int64
	messages   atomic.Int64
}

// tally counts one operation's requests.
type tally struct {
	requests       atomic.Int64
	responses      [6]atomic.Int64 // by class
	faults         atomic.Int64
	received, sent atomic.Int64
}

func newCounters() *counters {
	c := &counters{operations: make(map[Operation]*tally), faults: make(map[FaultKind]*atomic.Int64)}
	for _, op := range operations {
		c.operations[op] = new(tally)
	}
	for _, kind := range faultKinds {
		c.faults[kind] = new(atomic.Int64)
	}
	return c
}

// Counts returns the counts so far. It is not a request.
func (s *Server) Counts() Counts {
	out := Counts{
		Operations: map[Operation]int64{},
		Tallies:    map[Operation]Tally{},
		Statuses:   map[int]int64{},
		Faults:     map[FaultKind]int64{},
		OverQuota:  s.counters.overQuota.Load(),
		Busy:       s.counters.busy.Load(),
		EmptyGets:  s.counters.emptyGets.Load(),
		Messages:   s.counters.messages.Load(),
	}
	for op, t := range s.counters.operations {
		n := t.requests.Load()
		if n == 0 {
			continue
		}
		tally := Tally{Faults: t.faults.Load(), Received: t.received.Load(), Sent: t.sent.Load()}
		for class := range t.responses {
			n := t.responses[class].Load()
			if tally.Responses[class] = n; n > 0 {
				out.Statuses[class] += n
			}
		}
		out.Operations[op], out.Tallies[op] = n, tally
	}
	for kind, n := range s.counters.faults {
		if n := n.Load(); n > 0 {
			out.Faults[kind] = n
		}
	}
	return out
}

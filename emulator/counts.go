package emulator

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"text/tabwriter"
)

// Counts are the requests since a [Server] was made. The zero value is none.
// [Counts.String] shows them as a table.
type Counts struct {
	// Operations is how many requests came for each operation, successful or
	// not. Operations that nobody asked for are left out.
	Operations map[Operation]int64

	// Tallies is what came of them, for the same operations.
	Tallies map[Operation]Tally

	// Statuses is how many responses were given of each class: 2 for 2xx and
	// so on. A request that its client gave up has none, nor has one whose
	// connection a fault has broken.
	Statuses map[int]int64

	// Faults is how many requests were hit by a fault of each kind of
	// [Options].Faults. Kinds that did not come up are left out. A request
	// that was delayed and then something else counts with both.
	Faults map[FaultKind]int64

	// Limited is how many requests were refused because of [Options].Limits.
	Limited int64

	// Busy is how many responses were 503, by a fault or by a limit. They are
	// requests like others, but the only ones that Microsoft lists as not
	// billed which this server gives on purpose (Storage Analytics Logged
	// Operations and Status Messages: ThrottlingError).
	Busy int64

	// EmptyGets is how many GetMessages succeeded and found nothing: polls
	// that are paid and bring nothing.
	EmptyGets int64

	// Messages is how many messages GetMessages has handed out, also those in
	// an answer that a fault has dropped.
	Messages int64
}

// Tally is what came of the requests of one operation. The zero value is nothing.
type Tally struct {
	// Answers is how many answers there were of each class: Answers[2] is 2xx.
	// Requests without an answer are in none: they are on the way, given up, or
	// hit by a fault that breaks the connection.
	Answers [6]int64

	// Faults is how many requests were hit by a fault.
	Faults int64

	// Received and Sent are the bytes of the bodies, of requests whose body was
	// read and of answers. Lines and headers are not in it.
	Received, Sent int64
}

// Requests returns the number of all requests: the transactions of a bill.
func (c Counts) Requests() int64 {
	var sum int64
	for _, n := range c.Operations {
		sum += n
	}
	return sum
}

// String returns the counts as a table, one line an operation, and their sums.
// It ends with a line break. Below the table stand the gets that were empty, the
// faults, and what was busy, when there were any.
func (c Counts) String() string {
	var b, table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', tabwriter.AlignRight)
	writeRow(w, "operation", "requests", "2xx", "4xx", "5xx", "no answer", "faults", "bytes in", "bytes out")
	var sum Tally
	for _, op := range operations {
		if n := c.Operations[op]; n > 0 {
			t := c.Tallies[op]
			t.row(w, string(op), n)
			sum.add(t)
		}
	}
	sum.row(w, "transactions", c.Requests())
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
		fmt.Fprintf(&b, "503, which the service does not bill: %d; over a limit: %d\n", c.Busy, c.Limited)
	}
	return b.String()
}

func (t Tally) row(w io.Writer, name string, requests int64) {
	a := t.Answers
	unanswered := requests - a[1] - a[2] - a[3] - a[4] - a[5]
	writeRow(w, name, requests, a[2], a[4], a[5], unanswered, t.Faults, t.Received, t.Sent)
}

// writeRow writes a row of numbers behind a name, which stands on the left.
func writeRow(w io.Writer, name string, cells ...any) {
	line := fmt.Sprintf("%-*s\t", len(SetServiceProperties), name)
	for _, cell := range cells {
		line += fmt.Sprint(cell, "\t")
	}
	_, _ = io.WriteString(w, line+"\n") // a strings.Builder takes everything
}

func (t *Tally) add(other Tally) {
	for class := range t.Answers {
		t.Answers[class] += other.Answers[class]
	}
	t.Faults += other.Faults
	t.Received += other.Received
	t.Sent += other.Sent
}

// counters are what [Counts] is taken from. They are separate atomics: a
// snapshot taken while requests run may be a few requests apart in itself.
type counters struct {
	operations map[Operation]*tally        // the map never changes
	faults     map[FaultKind]*atomic.Int64 // the map never changes
	limited    atomic.Int64
	busy       atomic.Int64
	emptyGets  atomic.Int64
	messages   atomic.Int64
}

// tally counts the requests of one operation.
type tally struct {
	requests       atomic.Int64
	answers        [6]atomic.Int64 // by class
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

// hit counts a request that has a fate.
func (c *counters) countFault(t *tally, f injection) {
	t.faults.Add(1)
	if f.kind != "" {
		c.faults[f.kind].Add(1)
	}
	if f.delay > 0 {
		c.faults[FaultDelay].Add(1)
	}
}

func (c *counters) countGet(messages int) {
	if messages == 0 {
		c.emptyGets.Add(1)
	}
	c.messages.Add(int64(messages))
}

// snapshot is the number of requests, and what came of them.
func (t *tally) snapshot() (requests int64, out Tally) {
	requests = t.requests.Load()
	for class := range t.answers {
		out.Answers[class] = t.answers[class].Load()
	}
	out.Faults, out.Received, out.Sent = t.faults.Load(), t.received.Load(), t.sent.Load()
	return requests, out
}

// Counts returns how many requests there were so far. It costs no request.
func (s *Server) Counts() Counts {
	out := Counts{
		Operations: map[Operation]int64{},
		Tallies:    map[Operation]Tally{},
		Statuses:   map[int]int64{},
		Faults:     map[FaultKind]int64{},
		Limited:    s.counters.limited.Load(),
		Busy:       s.counters.busy.Load(),
		EmptyGets:  s.counters.emptyGets.Load(),
		Messages:   s.counters.messages.Load(),
	}
	for op, t := range s.counters.operations {
		n, t := t.snapshot()
		if n == 0 {
			continue
		}
		out.Operations[op], out.Tallies[op] = n, t
		for class, n := range t.Answers {
			if n > 0 {
				out.Statuses[class] += n
			}
		}
	}
	for kind, n := range s.counters.faults {
		if n := n.Load(); n > 0 {
			out.Faults[kind] = n
		}
	}
	return out
}

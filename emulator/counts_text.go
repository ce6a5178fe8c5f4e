package emulator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// String is a table for people who check a bill: the requests of each operation,
// the most frequent first, with the empty ones among GetMessages, their sum,
// which is the transactions, the messages handed out, the answers by class of
// status, and what was throttled and injected, where there was any. It ends in a
// newline.
func (c Counts) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 0, ' ', tabwriter.AlignRight)
	line := func(name string, n int64) {
		_, _ = fmt.Fprintf(w, "%d\t %s\n", n, name) // a strings.Builder never fails
	}
	for _, op := range descending(c.Operations) {
		line(string(op), c.Operations[op])
		if op == GetMessages {
			line("  of them empty", c.EmptyGets)
		}
	}
	line("transactions", c.Requests())
	line("messages handed out", c.Messages)
	for _, class := range slices.Sorted(maps.Keys(c.Statuses)) {
		line(fmt.Sprintf("answers %dxx", class), c.Statuses[class])
	}
	if c.Throttled > 0 {
		line("throttled", c.Throttled)
	}
	for _, kind := range descending(c.Faults) {
		line("faults "+string(kind), c.Faults[kind])
	}
	_ = w.Flush()
	return b.String()
}

// descending returns the keys by falling number, then by name.
func descending[K cmp.Ordered](counts map[K]int64) []K {
	return slices.SortedFunc(maps.Keys(counts), func(a, b K) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}

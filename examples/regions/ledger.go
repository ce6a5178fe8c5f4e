package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/producer"
)

// ledger records the fate of the orders, as far as this process knows.
type ledger struct {
	begun time.Time

	mu       sync.Mutex
	out      io.Writer    // guarded by mu
	where    string       // where the last order went; guarded by mu
	accepted map[int]bool // guarded by mu
	failed   int          // orders that were not accepted; guarded by mu
	doubtful int          // orders that may have been sent twice; guarded by mu
	times    map[int]int  // how often each order was handled; guarded by mu
}

func newLedger(out io.Writer) *ledger {
	return &ledger{begun: time.Now(), out: out, accepted: make(map[int]bool), times: make(map[int]int)}
}

// say prints a line.
func (l *ledger) say(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.print(format, args...)
}

// print is say with mu held.
func (l *ledger) print(format string, args ...any) {
	fmt.Fprintf(l.out, "%5.1fs  %s\n", time.Since(l.begun).Seconds(), fmt.Sprintf(format, args...))
}

// sent notes an order, and prints a line when orders begin to go elsewhere.
func (l *ledger) sent(n int, sent producer.Sent, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	where := "the primary queue, in the west"
	switch {
	case err != nil:
		where = "no queue"
		l.failed++
	case strings.Contains(sent.Queue.Queue, "-backlog-"):
		where = "backlog queues, in the east"
	}
	if err == nil {
		l.accepted[n] = true
	}
	if sent.MaybeTwice {
		l.doubtful++
	}
	if where == l.where {
		return
	}
	l.where = where
	if err != nil {
		l.print("order %d went to %s: %v", n, where, err)
		return
	}
	l.print("order %d went to %v: orders go to %s", n, sent.Queue, where)
}

// handled notes that an order was handled.
func (l *ledger) handled(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times[n]++
}

// handledSoFar says how many orders were handled, and how often one was again.
func (l *ledger) handledSoFar() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	again := 0
	for _, n := range l.times {
		again += n - 1
	}
	return fmt.Sprintf("%d orders handled, %d of them again", len(l.times), again)
}

// waiting returns how many accepted orders were not handled yet.
func (l *ledger) waiting() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for order := range l.accepted {
		if l.times[order] == 0 {
			n++
		}
	}
	return n
}

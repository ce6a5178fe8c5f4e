package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/millrace/millrace/agent"
)

// quietInterval is how often a pool in which nothing changes has a line all the same.
const quietInterval = 10 * time.Minute

// decisionPrinter prints decisions as they are made, for several pools at once.
type decisionPrinter struct {
	out    io.Writer
	asJSON bool
	stop   context.CancelCauseFunc // ends the agent if the output fails

	mu   sync.Mutex
	last map[string]time.Time // when a pool had a line; guarded by mu
}

// decided prints a decision if it changes something, if it is the first of its pool, or if the last line is old. A change that
// failed is in the log. As JSON all decisions are printed.
func (p *decisionPrinter) decided(d agent.Decided) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	switch last, seen := p.last[d.Pool]; {
	case p.asJSON:
		err = printJSON(p.out, d)
	case d.Err != nil, seen && !d.Changes() && d.Decision.At.Sub(last) < quietInterval:
		return
	default:
		p.last[d.Pool] = d.Decision.At
		_, err = fmt.Fprintf(p.out, "%s %s: %s\n", instant(d.Decision.At), d.Pool, escapeControls(d.Decision.Why))
	}
	if err != nil {
		p.stop(err)
	}
}

// instant returns a time for a line of a log.
func instant(at time.Time) string { return at.UTC().Format(time.RFC3339) }

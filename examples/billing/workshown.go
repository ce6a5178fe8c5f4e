package main

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/examples/billing/roles"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/progress"
)

// workShown says now and then what a worker has done. It is a [millrace.Runner].
type workShown struct {
	show *progress.Progress

	mu      sync.Mutex
	items   int           // charged; guarded by mu
	records int64         // of these items; guarded by mu
	last    roles.Charged // guarded by mu
}

// workEvery is how often a line comes at most.
const workEvery = time.Second

func (w *workShown) charged(c roles.Charged) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.items++
	w.records += int64(c.Records)
	w.last = c
}

// Run says what was done since it said so last, until ctx ends.
func (w *workShown) Run(ctx context.Context) error {
	tick := time.NewTicker(workEvery)
	defer tick.Stop()
	said := 0
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			w.say(&said)
			return nil
		}
		w.say(&said)
	}
}

func (w *workShown) say(said *int) {
	w.mu.Lock()
	items, records, last := w.items, w.records, w.last
	w.mu.Unlock()
	if items > *said {
		*said = items
		w.show.Say("batch %s: item %d of %d is charged; %s with %s records until now", last.Batch, last.Item+1, last.Items, cli.Plural(items, "item"), cli.Grouped(records))
	}
}

// Halt does nothing: Run returns when its context ends.
func (*workShown) Halt() {}

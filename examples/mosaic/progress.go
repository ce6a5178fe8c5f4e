package main

import (
	"io"
	"sync"
	"time"

	"github.com/millrace/millrace/examples/internal/progress"
	"github.com/millrace/millrace/examples/mosaic/roles"
)

// display shows the progress of a mosaic. It is safe for concurrent use.
type display struct {
	*progress.Progress

	mu    sync.Mutex
	lines int // tenths of all slices that were printed; guarded by mu
}

func newDisplay(stdout, stderr io.Writer) *display {
	return &display{Progress: progress.New(stdout, stderr)}
}

// slices shows how many slices are finished.
func (d *display) slices(finished, all int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Bar("rendering slices", finished, all)
	if tenths := finished * 10 / all; tenths > d.lines {
		d.lines = tenths
		if !d.Terminal() {
			d.Say("%d of %d slices are finished", finished, all)
		}
	}
}

// photographs shows how many photographs were read for tiles. Without a terminal, the summary that follows has to do.
func (d *display) photographs(done, all int) { d.Bar("reading photographs", done, all) }

// hints say what an order waits for if nothing happens to it, once for each role.
type hints struct {
	show  *display
	last  roles.Progress
	since time.Time
	given roles.Roles
}

// quiet is how long nothing happens before a hint: longer than a slice takes, and shorter than a user's patience.
const quiet = 5 * time.Second

// see compares the progress with the last one.
func (h *hints) see(now roles.Progress) {
	role := now.WaitsFor()
	if h.since.IsZero() || len(now.Stored) != len(h.last.Stored) || role != h.last.WaitsFor() {
		h.last, h.since = now, time.Now()
		return
	}
	if time.Since(h.since) < quiet || h.given.Has(role) {
		return
	}
	h.given |= role
	const again = "; the work of a killed one is taken up again half a minute later"
	switch role {
	case roles.Controller:
		h.show.Say("still waiting: no controller has taken this up for %v. Start one in another terminal with mosaic controller, or use -roles all%s", quiet, again)
	case roles.Processor:
		h.show.Say("still waiting: no processor has finished a slice for %v. Start one in another terminal with mosaic processor, or use -roles all%s", quiet, again)
	}
}

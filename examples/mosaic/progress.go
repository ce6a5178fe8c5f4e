package main

import (
	"io"
	"sync"

	"github.com/millrace/millrace/examples/internal/progress"
)

// display shows the progress of a mosaic. It is safe for concurrent use.
type display struct {
	*progress.Progress

	mu     sync.Mutex
	shown  int  // highest number of slices shown; guarded by mu
	lines  int  // tenths of all slices that were printed; guarded by mu
	closed bool // guarded by mu
}

func newDisplay(stdout, stderr io.Writer) *display {
	return &display{Progress: progress.New(stdout, stderr)}
}

// slices shows how many slices are finished. It ignores numbers that arrive out of order.
func (d *display) slices(stored []int, all int) {
	laid := len(stored)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.shown > 0 && laid <= d.shown {
		return
	}
	d.shown = laid
	d.Bar("rendering slices", laid, all)
	if d.Terminal() {
		if laid == all {
			d.Say("composing the mosaic")
		}
		return
	}
	if tenths := laid * 10 / all; tenths > d.lines {
		d.lines = tenths
		d.Say("%d of %d slices are finished", laid, all)
	}
}

// photographs shows how many photographs were read for tiles. Without a terminal, the summary that follows has to do.
func (d *display) photographs(done, all int) { d.Bar("reading photographs", done, all) }

// Close clears the bar. No slices are shown afterwards.
func (d *display) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.Progress.Close()
}

// finished returns the highest number of slices shown.
func (d *display) finished() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shown
}

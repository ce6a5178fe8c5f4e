package main

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows the progress: with a bar if stderr is a terminal, and otherwise with a few lines on
// stdout, so that stderr has only errors. It is safe for concurrent use.
type progress struct {
	stdout, stderr io.Writer
	terminal       bool

	mu     sync.Mutex
	bar    *progressbar.ProgressBar // nil before there are slices, and without a terminal; guarded by mu
	shown  int                      // highest number of slices shown; guarded by mu
	lines  int                      // tenths of all slices that were printed; guarded by mu
	closed bool                     // guarded by mu
}

func newProgress(stdout, stderr io.Writer) *progress {
	f, ok := stderr.(*os.File)
	return &progress{stdout: stdout, stderr: stderr, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// say prints what is done next.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal {
		say(p.stderr, format+"\n", args...)
		return
	}
	say(p.stdout, format+"\n", args...)
}

// slices shows how many slices are finished. It ignores numbers that arrive out of order.
func (p *progress) slices(laid, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.shown > 0 && laid <= p.shown {
		return
	}
	p.shown = laid
	if p.terminal {
		if p.bar == nil {
			p.bar = newBar(p.stderr, all)
		}
		_ = p.bar.Set(laid) // fails only if the terminal does
		if laid == all {    // the bar has cleared itself
			say(p.stderr, "composing the mosaic\n")
		}
		return
	}
	if tenths := laid * 10 / all; tenths > p.lines {
		p.lines = tenths
		say(p.stdout, "%d of %d slices are finished\n", laid, all)
	}
}

func newBar(w io.Writer, all int) *progressbar.ProgressBar {
	return progressbar.NewOptions(all,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription("rendering slices"),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(50*time.Millisecond),
		progressbar.OptionSetRenderBlankState(true),
		progressbar.OptionClearOnFinish(),
	)
}

// close clears the bar.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.bar != nil {
		_ = p.bar.Clear()
		p.bar = nil
	}
}

// Write prints lines of a log to stderr, above the bar.
func (p *progress) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar == nil {
		return p.stderr.Write(line)
	}
	_ = p.bar.Clear()
	n, err := p.stderr.Write(line)
	_ = p.bar.RenderBlank()
	return n, err
}

// Package progress shows people how far the work is.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/millrace/millrace/examples/internal/cli"
)

// Progress shows the finished work: with a bar if stderr is a terminal, and otherwise with lines on
// stdout, so that stderr has only errors. It is safe for concurrent use.
type Progress struct {
	stdout, stderr io.Writer
	terminal       bool

	mu     sync.Mutex
	bar    *progressbar.ProgressBar // nil without a bar, or without a terminal; guarded by mu
	what   string                   // the work that the bar shows; guarded by mu
	closed bool                     // guarded by mu
}

// New returns a Progress on these outputs.
func New(stdout, stderr io.Writer) *Progress {
	f, ok := stderr.(*os.File)
	return &Progress{stdout: stdout, stderr: stderr, terminal: ok && term.IsTerminal(int(f.Fd()))}
}

// Terminal reports whether there are bars.
func (p *Progress) Terminal() bool { return p.terminal }

// Stdout is for results: they come after [Progress.Close].
func (p *Progress) Stdout() io.Writer { return p.stdout }

// Say prints the next step, above the bar.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.terminal {
		cli.Say(p.stdout, format+"\n", args...)
		return
	}
	_, _ = p.aboveBar([]byte(cli.Escaped(fmt.Sprintf(format+"\n", args...)))) // as cli.Say
}

// Bar shows how much of the work is done. The bar of other work is replaced, and one that is full goes away. Without
// a terminal it does nothing.
func (p *Progress) Bar(what string, done, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || !p.terminal {
		return
	}
	if p.bar != nil && p.what != what {
		_ = p.bar.Clear() // fails only if the terminal does
		p.bar = nil
	}
	if p.bar == nil {
		p.bar, p.what = newBar(p.stderr, what, all), what
	}
	_ = p.bar.Set(done) // as Clear
	if done == all {
		p.bar = nil // it has cleared itself
	}
}

func newBar(w io.Writer, what string, all int) *progressbar.ProgressBar {
	return progressbar.NewOptions(all,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(50*time.Millisecond),
		progressbar.OptionSetRenderBlankState(true),
		progressbar.OptionClearOnFinish(),
	)
}

// Close clears the bar. No bar is shown afterwards.
func (p *Progress) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.bar != nil {
		_ = p.bar.Clear() // fails only if the terminal does
		p.bar = nil
	}
}

// Write prints lines of a log to stderr, above the bar.
func (p *Progress) Write(line []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.aboveBar(line)
}

// aboveBar prints to stderr, above the bar. The caller holds p.mu.
func (p *Progress) aboveBar(line []byte) (int, error) {
	if p.bar == nil {
		return p.stderr.Write(line)
	}
	_ = p.bar.Clear() // fails only if the terminal does
	n, err := p.stderr.Write(line)
	_ = p.bar.RenderBlank() // as Clear
	return n, err
}

package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/examples/internal/cli"
)

// ProcessorStatus describes a processor.
type ProcessorStatus struct {
	ID      int    `json:"id"`
	PID     int    `json:"pid"`     // 0 while it does not run
	Handled int64  `json:"handled"` // slices
	State   string `json:"state"`   // for people
}

// Number is the number of a processor for people.
func (p ProcessorStatus) Number() int { return p.ID + 1 }

// Processors runs processors as child processes, and starts them again when they end. Make one with [NewProcessors]. It
// implements millrace.Runner and is safe for concurrent use.
type Processors struct {
	command func(ctx context.Context, slow time.Duration) *exec.Cmd
	logger  *slog.Logger

	mu   sync.Mutex
	all  []*processor  // guarded by mu, with all that is in them
	slow time.Duration // guarded by mu
}

// processor is one child process after the other.
type processor struct {
	ProcessorStatus
	cmd   *exec.Cmd // nil while it does not run
	input io.Closer // of cmd: a processor stops when its input ends
}

// NewProcessors returns n processors, which the command starts. A processor stops when its standard
// input ends, so it does not outlive the program. It writes a line on standard output for every
// slice.
func NewProcessors(n int, command func(ctx context.Context, slow time.Duration) *exec.Cmd, logger *slog.Logger) *Processors {
	p := &Processors{command: command, logger: logger}
	for i := range n {
		p.all = append(p.all, &processor{ProcessorStatus: ProcessorStatus{ID: i}})
	}
	return p
}

// Status describes the processors.
func (p *Processors) Status() []ProcessorStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]ProcessorStatus, len(p.all))
	for i, one := range p.all {
		list[i] = one.ProcessorStatus
		list[i].State = "starting"
		if one.PID > 0 {
			list[i].State = fmt.Sprintf("process %d, %s", one.PID, cli.Plural(int(one.Handled), "slice"))
		}
	}
	return list
}

// Kill kills a processor immediately, without a chance to clean up. It returns its process id, and false if it does
// not run.
func (p *Processors) Kill(id int) (pid int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.all[id]
	if one.cmd == nil {
		return 0, false
	}
	return one.PID, one.cmd.Process.Kill() == nil
}

// Slow makes every slice take longer. For that, the processors stop as soon as their slices are finished, and start
// again.
func (p *Processors) Slow(delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slow == delay {
		return
	}
	p.slow = delay
	for _, one := range p.all {
		if one.cmd != nil {
			_ = one.input.Close() // it may have ended
		}
	}
}

// Slowed returns how much longer every slice takes.
func (p *Processors) Slowed() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slow
}

// Run runs the processors until ctx ends, and waits until all have ended.
func (p *Processors) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, one := range p.all {
		running.Go(func() { p.keep(ctx, one) })
	}
	running.Wait()
	return nil
}

// Halt kills the processors.
func (p *Processors) Halt() {
	for i := range p.all {
		p.Kill(i)
	}
}

// keep runs one process after the other. It waits before each start, longer if they end soon after their start.
func (p *Processors) keep(ctx context.Context, one *processor) {
	const first, longest = 500 * time.Millisecond, 15 * time.Second
	for wait := first; ctx.Err() == nil; wait = min(2*wait, longest) {
		begin := time.Now()
		err := p.runOnce(ctx, one)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begin) > longest || err == nil {
			wait = first
		}
		if err != nil {
			p.logger.Warn("a processor has ended and is started again", "processor", one.Number(), "reason", err, "in", wait)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// runOnce runs one process until it ends. It stops the process when ctx ends, and kills it if it does not stop.
func (p *Processors) runOnce(ctx context.Context, one *processor) error {
	p.mu.Lock()
	cmd := p.command(ctx, p.slow)
	input, errIn := cmd.StdinPipe()
	cmd.Cancel, cmd.WaitDelay = func() error { return input.Close() }, 5*time.Second
	output, errOut := cmd.StdoutPipe()
	err := errors.Join(errIn, errOut)
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		one.cmd, one.input, one.PID = cmd, input, cmd.Process.Pid
	}
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("start a processor: %w", err)
	}
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "request ") {
			p.mu.Lock()
			one.Handled++
			p.mu.Unlock()
		}
	}
	err = cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	one.cmd, one.PID = nil, 0
	return err
}

package web

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"sync"
	"time"
)

// Report is what a processor that this program started says about itself, as a line of JSON on its standard output.
type Report struct {
	Handled  int64 `json:"handled"`  // messages
	Loops    int   `json:"loops"`    // that dequeue now
	Handlers int   `json:"handlers"` // that run now
}

// Order is what this program says to a processor, as a line of JSON on its standard input. A processor ends when its input does, so
// that none outlives the program, however that ends.
type Order struct {
	Delay time.Duration `json:"delay"` // before a slice is stored
}

// ProcessorStatus describes a processor.
type ProcessorStatus struct {
	ID       int    `json:"id"`
	PID      int    `json:"pid"`   // 0 while it does not run
	State    string `json:"state"` // "starting", "running", "restarting" or "stopped"
	Handled  int64  `json:"handled"`
	Loops    int    `json:"loops"`
	Handlers int    `json:"handlers"`
	Restarts int    `json:"restarts"`
}

// Processors runs processors as child processes, and starts those again that end. Make one with [NewProcessors]. It implements
// millrace.Runner and is safe for concurrent use.
type Processors struct {
	command func() *exec.Cmd
	logger  *slog.Logger

	mu    sync.Mutex
	all   []*processor  // guarded by mu, with all that is in them
	delay time.Duration // guarded by mu
}

// processor is one child process after the other.
type processor struct {
	ProcessorStatus
	before int64         // messages that those before have handled
	cmd    *exec.Cmd     // nil while it does not run
	orders chan struct{} // has a value if the process has to be told something; never changes
}

// The waits of [Processors].
const (
	again    = time.Second      // before a processor is started again
	calm     = 10 * time.Second // a processor that ended sooner may fail again: the wait doubles
	tooLong  = 15 * time.Second // the longest wait
	mayStop  = 5 * time.Second  // until a processor that was asked to stop is killed
	maxLine  = 64 << 10         // of a report
	starting = "starting"
)

// NewProcessors returns n processors, which the command starts. It must leave standard input and output alone.
func NewProcessors(n int, command func() *exec.Cmd, logger *slog.Logger) *Processors {
	p := &Processors{command: command, logger: logger}
	for i := range n {
		p.all = append(p.all, &processor{ProcessorStatus: ProcessorStatus{ID: i, State: starting}, orders: make(chan struct{}, 1)})
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
	}
	return list
}

// Kill kills a processor at once, without a chance to clean up. It returns its process id, and false if it does not run.
func (p *Processors) Kill(id int) (pid int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id < 0 || id >= len(p.all) || p.all[id].cmd == nil {
		return 0, false
	}
	one := p.all[id]
	return one.PID, one.cmd.Process.Kill() == nil
}

// Slow makes all processors wait before they store a slice, also those that are started later. It does not wait until they know.
func (p *Processors) Slow(delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = delay
	for _, one := range p.all {
		one.order()
	}
}

// order has the process told what holds now. What it was not told yet is replaced.
func (one *processor) order() {
	select {
	case one.orders <- struct{}{}:
	default: // it will be told anyway
	}
}

// tell sends orders to a process until it ends. It has a goroutine of its own and holds no lock: a process that is stopped does not
// read, and the pipe to it fills up. The write ends when the input is closed.
func (p *Processors) tell(one *processor, input io.Writer, ended <-chan struct{}) {
	lines := json.NewEncoder(input)
	for {
		select {
		case <-one.orders:
		case <-ended:
			return
		}
		p.mu.Lock()
		now := Order{p.delay}
		p.mu.Unlock()
		if err := lines.Encode(now); err != nil {
			p.logger.Debug("a processor does not listen", "processor", one.ID, "error", err) // it has just ended
			return
		}
	}
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

// keep runs one process after the other.
func (p *Processors) keep(ctx context.Context, one *processor) {
	wait := again
	for ctx.Err() == nil {
		begin := time.Now()
		err := p.runOnce(ctx, one)
		if ctx.Err() != nil {
			break
		}
		if time.Since(begin) > calm {
			wait = again
		}
		p.logger.Warn("a processor has ended and is started again", "processor", one.ID, "reason", err, "in", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait = min(2*wait, tooLong)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	one.State = "stopped"
}

// runOnce runs one process until it ends.
func (p *Processors) runOnce(ctx context.Context, one *processor) error {
	cmd := p.command()
	input, errIn := cmd.StdinPipe()
	output, errOut := cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a processor: %w", err)
	}
	p.began(one, cmd)
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { stopWith(ctx, cmd, input, ended) })
	watch.Go(func() { p.tell(one, input, ended) })
	p.read(one, output)
	err := cmd.Wait() // closes the input too
	close(ended)
	watch.Wait()
	p.ended(one)
	if err == nil {
		err = errors.New("it ended by itself")
	}
	return err
}

// stopWith asks a process to stop when ctx ends, and kills it if it does not.
func stopWith(ctx context.Context, cmd *exec.Cmd, input io.Closer, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	_ = input.Close() // it may have ended
	select {
	case <-ended:
	case <-time.After(mayStop):
		_ = cmd.Process.Kill() // it may have ended
	}
}

func (p *Processors) began(one *processor, cmd *exec.Cmd) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one.cmd, one.PID, one.State = cmd, cmd.Process.Pid, starting
	if p.delay > 0 {
		one.order()
	}
}

func (p *Processors) ended(one *processor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one.before = one.Handled
	one.cmd, one.PID, one.State, one.Loops, one.Handlers = nil, 0, "restarting", 0, 0
	one.Restarts++
}

// read takes the reports of a process until it ends.
func (p *Processors) read(one *processor, output io.Reader) {
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		var r Report
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue // not for us
		}
		p.mu.Lock()
		one.State, one.Handled, one.Loops, one.Handlers = "running", one.before+r.Handled, r.Loops, r.Handlers
		p.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, output) // after a line that was too long
}

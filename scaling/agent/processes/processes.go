package processes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/scaling/agent"
)

// NumberVariable is the environment variable that tells an instance its number: 1 or more, and no
// other instance of the folder that runs has the same. A number is used again when its instance has
// ended; one that is started again keeps its own.
const NumberVariable = "MILLRACE_INSTANCE"

// Options configure [Processes]. Command and Folder must be set.
type Options struct {
	// Command is the program of an instance and its arguments. The program is searched for in the
	// PATH, once, by New. It must be set.
	Command []string

	// Env are settings added to this process's environment, each "NAME=value". They replace those
	// of the same name. Defaults to none.
	Env []string

	// Folder is where it is kept which processes run, so that the next agent finds them. It is made
	// if it does not exist, and made again if it is deleted. Each pool needs a folder of its own,
	// on a disk of this machine. It must be set.
	Folder string

	// Grace is how long an instance may take to finish its jobs after it was told to end, before it
	// is killed. It should be longer than the grace of the instance's own listeners. Defaults to 1
	// min.
	Grace time.Duration

	// Output is where the output of the instances goes, each line as "[number] line". It is called
	// for several instances at a time, and may block: the instances keep working. Defaults to
	// os.Stderr.
	Output io.Writer

	// Logger logs starts and ends. Defaults to slog.Default().
	Logger *slog.Logger
}

// withDefaults returns the options with everything set, or everything that is wrong with them.
func (o Options) withDefaults(starts bool) (Options, error) {
	var wrong []error
	if !starts {
		o.Command = nil
	} else if len(o.Command) == 0 || o.Command[0] == "" {
		wrong = append(wrong, errors.New("there is no Command, the program of an instance"))
	} else if path, err := exec.LookPath(o.Command[0]); err != nil {
		wrong = append(wrong, fmt.Errorf("the Command cannot be run: %w", err))
	} else {
		o.Command = append([]string{path}, o.Command[1:]...)
	}
	for n, one := range o.Env {
		if name, _, found := strings.Cut(one, "="); !found || name == "" { // it may be a secret
			wrong = append(wrong, fmt.Errorf("entry %d of Env is not of the form NAME=value", n+1))
		}
	}
	if o.Folder == "" {
		wrong = append(wrong, errors.New("there is no Folder, in which it is kept which processes run"))
	}
	if o.Grace < 0 {
		wrong = append(wrong, fmt.Errorf("the Grace of %v is negative", o.Grace))
	}
	wrong = append(wrong, units.Wait("the Grace", o.Grace))
	o.Output = cmp.Or[io.Writer](o.Output, os.Stderr)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	return o, errors.Join(wrong...)
}

// ErrClosed is the error of the methods of [Processes] that were closed.
var ErrClosed = errors.New("processes: closed")

// ErrInUse is the error of [New] and [Drain] for a folder whose instances another agent supervises.
var ErrInUse = errors.New("another agent supervises the instances of this folder")

// Processes are the instances of one pool, as processes on this machine. It is safe for concurrent
// use.
type Processes struct {
	requests chan func(*keeper)
	ended    chan struct{}  // closed when the keeper has ended
	outputs  sync.WaitGroup // those that are being copied
	patience time.Duration  // with Output, in Close
	state    atomic.Pointer[State]
}

var _ agent.Actuator = (*Processes)(nil)

// State is how the instances are. It may be copied.
type State struct {
	// Wanted is how many instances there should be: what Scale was last called with. It is the sum
	// of Running and Waiting.
	Wanted int `json:"wanted"`

	// Running is how many of them have a process.
	Running int `json:"running"`

	// Waiting is how many of them have ended by themselves, or could not be started, and will be
	// started again.
	Waiting int `json:"waiting"`

	// Draining is how many more processes there are: surplus ones that finish their jobs.
	Draining int `json:"draining"`

	// Adopted is how many processes New found.
	Adopted int `json:"adopted"`

	// Restarts is how often an instance has ended by itself since New.
	Restarts int64 `json:"restarts"`

	// Killed is how many surplus instances were killed since New, because they had not ended within
	// Grace.
	Killed int64 `json:"killed"`
}

// timing are the waits of the supervision.
type timing struct {
	look, maxLook       time.Duration // between looks at the processes, from one at which something had happened
	restart, maxRestart time.Duration // before an instance is started again
	steady              time.Duration // how long it must have run for these to begin anew
	record              time.Duration // for a process from its start to its record
	output              time.Duration // for Output, in Close
}

var standard = timing{
	look: 20 * time.Millisecond, maxLook: 250 * time.Millisecond,
	restart: time.Second, maxRestart: time.Minute, steady: time.Minute, record: 10 * time.Second,
	output: 5 * time.Second,
}

// New finds the processes that a former agent started, and supervises them: as many are wanted as
// run and do not drain, 0 in a new folder. It returns everything that is wrong with the options, an
// error that wraps [ErrInUse] if another agent has the folder, or why the folder cannot be used.
// End them with [Processes.Close] or [Processes.Drain].
func New(o *Options) (*Processes, error) { return open(*cmp.Or(o, &Options{}), standard, true) }

// Drain ends the instances that a former agent has left in o.Folder, as Scale does with 0, and
// waits for them. It needs no Command, and without a Grace it takes that of the former agent. The
// error wraps [ErrInUse] if an agent supervises the instances. If ctx ends before they have, Drain
// returns an error, and they finish their jobs without supervision.
func Drain(ctx context.Context, o *Options) error {
	p, err := open(*cmp.Or(o, &Options{}), standard, false)
	if err != nil {
		return err
	}
	return p.Drain(ctx)
}

// Left returns how many instances run in a folder although no agent supervises them, so that
// nothing but [New] or [Drain] ends them. A folder that does not exist or that an agent supervises
// has none.
func Left(path string) (n int, err error) {
	if _, err := os.Stat(filepath.Join(path, agentLock)); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	f, err := openFolder(path, 0)
	if errors.Is(err, ErrInUse) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("processes: %w", err)
	}
	defer f.close()
	names, err := f.instances()
	for name := range names {
		p, failed := find(f.root, name, standard.record)
		err = errors.Join(err, failed)
		if p != nil {
			p.close()
			n++
		}
	}
	return n, err
}

// open supervises the instances of a folder. Without a Command to start more it only ends them.
func open(o Options, t timing, starts bool) (*Processes, error) {
	o, err := o.withDefaults(starts)
	if err != nil {
		return nil, fmt.Errorf("processes: %w", err)
	}
	f, err := openFolder(o.Folder, patience)
	if err != nil {
		return nil, fmt.Errorf("processes: %w", err)
	}
	p := &Processes{requests: make(chan func(*keeper)), ended: make(chan struct{}), patience: t.output}
	k := &keeper{options: &o, timing: t, folder: f, processes: p, instances: make(map[int]*instance)}
	if err := k.findInstances(); err != nil {
		k.release()
		return nil, fmt.Errorf("processes: %w", err)
	}
	go k.run() // Close waits for it
	return p, nil
}

// do lets the keeper call f, and waits until it has.
func (p *Processes) do(ctx context.Context, f func(*keeper)) error {
	done := make(chan struct{})
	select {
	case p.requests <- func(k *keeper) { defer close(done); f(k) }:
		<-done // soon: the keeper waits for nothing
		return nil
	case <-p.ended:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Instances returns how many instances are wanted. It returns [ErrClosed] after Close.
func (p *Processes) Instances(ctx context.Context) (n int, err error) {
	err = p.do(ctx, func(k *keeper) { n = k.wanted })
	return n, err
}

// State returns how the instances are.
func (p *Processes) State() State { return *p.state.Load() }

// Scale starts or ends instances until there are n. It does not wait for them. Of surplus ones
// those go first that wait to be started again, and then the youngest. Those that end already are
// not taken back: new ones are started beside them. An instance that cannot be started is logged,
// and tried again. An n below 0 is refused, and so is every n after Close.
func (p *Processes) Scale(ctx context.Context, n int) error {
	if n < 0 {
		return fmt.Errorf("processes: %d instances: the number must not be negative", n)
	}
	return p.do(ctx, func(k *keeper) { k.scale(n) })
}

// Close ends the supervision. The instances go on running, and the next New with the same folder
// finds them. Close waits up to 5 s for Output. The error is always nil. Further calls do nothing.
func (p *Processes) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), p.patience)
	defer cancel()
	p.release(ctx)
	return nil
}

// Drain ends all instances, which finish their jobs within Grace, waits for them, and then ends the
// supervision; do not call Scale meanwhile. If ctx ends before they have, Drain returns an error, and
// they end without supervision, or with that of the next agent. Drain waits for Output until ctx
// ends. After Close or Drain it does nothing.
func (p *Processes) Drain(ctx context.Context) error {
	err := p.Scale(context.WithoutCancel(ctx), 0)
	if errors.Is(err, ErrClosed) {
		return nil
	}
	for err == nil && p.State().Draining > 0 {
		select {
		case <-time.After(standard.look):
		case <-ctx.Done():
			err = fmt.Errorf("processes: %d instances have not ended yet: %w", p.State().Draining, ctx.Err())
		}
	}
	p.release(ctx) // whether or not there is time left for the instances
	return err
}

// release ends the supervision, and waits for Output until ctx ends.
func (p *Processes) release(ctx context.Context) {
	if ended := p.do(context.WithoutCancel(ctx), func(k *keeper) { k.stopping = true }); ended != nil {
		return // it had ended before
	}
	<-p.ended
	shown := make(chan struct{})
	go func() { // ends with the last call of Output
		defer close(shown)
		p.outputs.Wait()
	}()
	select {
	case <-shown:
	case <-ctx.Done():
	}
}

package processes

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/millrace/millrace/agent"
)

// Options configure [Processes].
type Options struct {
	// Command is the program of an instance and its arguments. It must be set.
	Command []string

	// Env are settings added to this process's environment, each "NAME=value". Defaults to none.
	Env []string

	// Folder is where it is kept which processes run, so that the next agent finds them. It must be set.
	Folder string

	// Grace is how long an instance may take to finish its jobs after it was told to end, before it is killed. Defaults to 1 min.
	Grace time.Duration

	// Output is where the output of the instances goes, line by line with the number of the instance. Defaults to os.Stderr.
	Output io.Writer

	// Logger logs starts and ends. Defaults to slog.Default().
	Logger *slog.Logger
}

// Processes are the instances of one pool, as processes on this machine. It is safe for concurrent use.
type Processes struct{}

var _ agent.Actuator = (*Processes)(nil)

// New finds the processes that a former agent started, and supervises them and those that follow.
func New(o Options) (*Processes, error) { panic("not written yet") }

// Instances returns how many instances are wanted.
func (p *Processes) Instances(ctx context.Context) (int, error) { panic("not written yet") }

// Scale starts or ends instances until there are n. It does not wait for them.
func (p *Processes) Scale(ctx context.Context, n int) error { panic("not written yet") }

// Close ends the supervision. With drain it first ends all instances, which finish their jobs within Grace, and waits for them.
func (p *Processes) Close(ctx context.Context, drain bool) error { panic("not written yet") }

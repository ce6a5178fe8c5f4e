package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/internal/agentfile"
	"github.com/millrace/millrace/scaling/agent"
	"github.com/millrace/millrace/scaling/agent/azure"
	"github.com/millrace/millrace/scaling/agent/processes"
)

const agentMore = `It measures the pools of a file, decides how many instances each needs, and starts and ends processes on
this machine, or scales a container app or a scale set of Azure. Each decision that changes something is a
line with its reason. The file is described, with an example, at ` + documents + `agent.md

With -drain it ends the instances of a pool that an agent has left at work, such as those of a pool that was
removed from the file or renamed.

With -dry-run it says for an hour what it would do, and then what that would cost. With -replay it plays a
trace of load against the policy and against the rules that others use, and asks no account.
`

const agentEpilogue = `
The first Ctrl-C lets instances finish their jobs and end, or go on with -leave. The second ends the agent
at once; what still runs is left to itself, until the next agent with the same folder takes over. Instances
in Azure always go on.
`

type agentSettings struct {
	account accountFlag
	config  string
	dryRun  bool
	length  time.Duration // of a dry run
	leave   bool
	drain   string
	replay  string
	pool    string
	asJSON  bool
}

// end returns after what time a dry run ends: right before a measurement that would fall due at its end.
func (s *agentSettings) end() time.Duration { return s.length - 1 }

func agentCommand() *command {
	s := new(agentSettings)
	f := newFlags("agent")
	path(f, &s.config, "config", "the `file` that says what to scale, YAML")
	s.account.addAlone(f)
	f.BoolVar(&s.dryRun, "dry-run", false, "change nothing: say what would be done, and what that would cost")
	durationVar(f, &s.length, "for", 0, "how long a dry run takes, a `duration` (default 1h)")
	f.BoolVar(&s.leave, "leave", false, "leave instances at work when the agent stops; the next one with the same folder\ntakes over")
	textVar(f, &s.drain, "drain", ": give the name of a pool, or omit the flag", "end the instances of the pool with this `name`, after their jobs, and stop; it may be\none that is not in the file any more")
	path(f, &s.replay, "replay", "play the trace in this `file` against the policy, CSV")
	f.StringVar(&s.pool, "pool", "", "with -replay: the policy of the pool with this `name`, if the file has several")
	f.BoolVar(&s.asJSON, "json", false, "print one JSON object per decision, each on its own line, and one per pool at the end")
	return &command{name: "agent", does: "start and end instances as the load requires", more: agentMore, epilogue: agentEpilogue, flags: f,
		run: func(ctx context.Context, c *console, _ []string) error {
			if err := s.check(); err != nil {
				return usageError{err}
			}
			file, err := agentfile.Read(s.config)
			if err != nil {
				return c.problems(err, s.config)
			}
			switch {
			case s.replay != "":
				return s.replayTrace(c, file)
			case s.drain != "":
				return s.drainPool(ctx, c, file)
			}
			return s.scale(ctx, c, file)
		}}
}

// check refuses flags that are missing or contradict each other.
func (s *agentSettings) check() error {
	switch {
	case s.config == "":
		return errors.New("missing -config: write millrace agent -config FILE; an example of the file is at " + documents + "agent.md")
	case s.length < 0:
		return fmt.Errorf("-for %v is negative", s.length)
	case s.length > 0 && !s.dryRun:
		return errors.New("-for is how long a dry run takes: add -dry-run")
	case s.leave && s.dryRun:
		return errors.New("-leave with -dry-run: a dry run has no instances to leave; omit one of them")
	case s.drain != "" && (s.dryRun || s.leave || s.replay != "" || s.account.given != ""):
		return errors.New("-drain only ends instances: omit -dry-run, -leave, -replay and -account")
	case s.drain != "" && strings.ContainsAny(s.drain, `./\`):
		return fmt.Errorf("-drain %q is not the name of a pool", s.drain)
	case s.replay != "" && (s.dryRun || s.leave || s.account.given != ""):
		return errors.New("-replay asks no account and has no instances: omit -dry-run, -leave and -account")
	case s.pool != "" && s.replay == "":
		return errors.New("-pool chooses the policy for -replay: add that, or omit -pool")
	}
	s.length = cmp.Or(s.length, time.Hour)
	return nil
}

// problems prints what is wrong with a file, a line each, if there is more than one, and returns the error for the last line.
func (c *console) problems(err error, path string) error {
	lines := strings.Split(err.Error(), "\n")
	if len(lines) == 1 {
		return err
	}
	for _, line := range lines {
		printf(c.err, "%s\n", escapeControls(redact(line)))
	}
	return fmt.Errorf("%s: %d errors, listed above", path, len(lines))
}

// processFolder is where it is kept which processes of a pool run.
func processFolder(file *agentfile.File, pool string) string {
	return filepath.Join(file.Folder, "processes", pool)
}

// drainPool ends the instances of a pool that no agent supervises, which may have been removed from the file.
func (s *agentSettings) drainPool(ctx context.Context, c *console, file *agentfile.File) error {
	folder := processFolder(file, s.drain)
	n, err := processes.Left(folder)
	if err != nil {
		return fmt.Errorf("drain pool %s: %w", s.drain, err)
	}
	switch _, err := os.Stat(folder); {
	case file.Folder == "":
		return fmt.Errorf("drain pool %s: %s has no folder, so it never had instances", s.drain, s.config)
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("drain pool %s: it never had instances here: there is no folder %s", s.drain, folder)
	case n > 0:
		printf(c.out, "Waiting for the jobs of %s of pool %s. Press Ctrl-C to leave them.\n", plural(n, "instance"), s.drain)
	}
	return c.work(ctx, &task{}, func(ctx context.Context, _ *task) error {
		err := processes.Drain(ctx, &processes.Options{Folder: folder, Output: c.err, Logger: slog.New(&agentLog{out: c.err}).With("pool", s.drain)})
		switch {
		case ctx.Err() != nil && err != nil:
			return interruption{fmt.Errorf("interrupted; the instances of pool %s were told to end, and finish their jobs without supervision", s.drain)}
		case errors.Is(err, processes.ErrInUse):
			return fmt.Errorf("drain pool %s: an agent runs that supervises its instances: stop that agent, and they end after their jobs; if it runs with -leave, repeat this command then", s.drain)
		case err != nil:
			return fmt.Errorf("drain pool %s: %w", s.drain, err)
		case n == 0:
			printf(c.out, "No instance of pool %s runs.\n", s.drain)
		}
		return nil
	})
}

// scale runs an agent until a signal, or until a dry run is over.
func (s *agentSettings) scale(ctx context.Context, c *console, file *agentfile.File) error {
	location, source, err := s.account.location(c)
	if err != nil {
		return usageError{fmt.Errorf("%s: %w", source, err)}
	}
	opened, err := file.Open(&agentfile.Sources{Default: location, Getenv: c.getenv})
	if err != nil {
		return c.problems(err, s.config)
	}
	defer opened.Close()
	finish, halt := context.WithCancel(ctx)
	defer halt()
	return millrace.Run(ctx, &agentRun{settings: s, console: c, file: file, pools: opened.Pools, out: &lockedWriter{to: c.out}, err: &lockedWriter{to: c.err}, finish: finish, halt: halt})
}

// agentRun is a millrace.Runner that runs an agent and its local processes.
type agentRun struct {
	settings *agentSettings
	console  *console
	file     *agentfile.File
	pools    []agent.Pool
	out, err io.Writer // of the console, locked
	local    []*localPool

	// finish is the context of what the first signal lets finish. The second signal ends it.
	finish context.Context
	halt   context.CancelFunc
}

// localPool are the instances of one pool on this machine.
type localPool struct {
	name      string
	processes *processes.Processes
	log       io.Closer // nil if they write to the standard error
}

// Run starts the agent, waits until it ends, and lets the instances end.
func (r *agentRun) Run(ctx context.Context) error {
	if err := r.start(); err != nil {
		return errors.Join(err, r.stop(false))
	}
	began := time.Now()
	a, err := r.scale(ctx)
	if a == nil {
		return errors.Join(err, r.stop(false))
	}
	// If the agent has ended by itself, instances go on: nobody has asked for their end.
	err = errors.Join(err, r.stop(ctx.Err() != nil && !r.settings.leave))
	if r.settings.asJSON {
		err = errors.Join(err, printSummaryJSON(r.out, a.State()))
	} else {
		err = errors.Join(err, r.printSummary(a.State(), time.Since(began)))
	}
	if passed := time.Since(began); err == nil && r.settings.dryRun && passed < r.settings.end() {
		return interruption{fmt.Errorf("interrupted after %s of %s", span(passed.Round(time.Second)), span(r.settings.length))}
	}
	return err
}

// Halt makes Run return soon: nothing is waited for any more.
func (r *agentRun) Halt() { r.halt() }

// scale runs the agent. It returns nil and an error if there is none.
func (r *agentRun) scale(ctx context.Context) (*agent.Agent, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &decisionPrinter{out: r.out, asJSON: r.settings.asJSON, stop: cancel, last: map[string]time.Time{}}
	log := &agentLog{out: r.err}
	if !r.settings.asJSON {
		log.changes = p.changed
	}
	o := &agent.Options{Interval: r.file.Interval, Prices: r.file.Prices, OnDecision: p.decided, Logger: slog.New(log)}
	if !r.settings.dryRun { // which may run beside the agent that has the folder
		o.Folder = r.file.Folder
	}
	a, err := agent.New(r.pools, o)
	if err != nil {
		return nil, err
	}
	if !r.settings.asJSON {
		r.printStartup()
	}
	defer context.AfterFunc(r.finish, a.Halt)()
	if r.settings.dryRun {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, r.settings.end())
		defer end()
	}
	err = a.Run(ctx)
	if failed := (*outputError)(nil); errors.As(context.Cause(ctx), &failed) {
		err = errors.Join(err, failed)
	}
	return a, err
}

// start takes over the processes of former agents and makes the actuators. In a dry run there are none.
func (r *agentRun) start() error {
	if r.settings.dryRun {
		return nil
	}
	for i, p := range r.file.Pools {
		if p.Azure != "" {
			a, err := azure.New(p.Azure, nil)
			if err != nil {
				return fmt.Errorf("pool %s: %w", p.Name, err)
			}
			r.pools[i].Actuator = a
		}
		if p.Processes == nil {
			continue
		}
		local, err := r.startLocal(p)
		if err != nil {
			return fmt.Errorf("pool %s: %w", p.Name, err)
		}
		r.local = append(r.local, local)
		r.pools[i].Actuator = local.processes
	}
	r.nameStrays()
	return nil
}

// nameStrays names the pools that are not in the file any more, or have no processes there, and whose instances run on.
func (r *agentRun) nameStrays() {
	entries, _ := os.ReadDir(processFolder(r.file, "")) // without processes there is none
	for _, e := range entries {
		pool := e.Name()
		if e.Type().IsRegular() {
			continue
		}
		n, err := processes.Left(processFolder(r.file, pool)) // none of those that this agent, or another one, supervises
		if err != nil {
			printf(r.err, "Cannot tell whether instances of pool %s run: %s\n", pool, escapeControls(err.Error()))
		}
		them, verb := "them", "run"
		if n == 1 {
			them, verb = "it", "runs"
		}
		if n > 0 {
			printf(r.err, "%s of pool %s, which the file does not start, %s on: millrace agent -config %s -drain %s ends %s.\n",
				plural(n, "instance"), pool, verb, r.settings.config, pool, them)
		}
	}
}

func (r *agentRun) startLocal(p agentfile.Pool) (*localPool, error) {
	local := &localPool{name: p.Name}
	output := r.err
	if p.Processes.Log != "" {
		f, err := openLog(p.Processes.Log)
		if err != nil {
			return nil, fmt.Errorf("log: %w", err)
		}
		output, local.log = f, f
	}
	var err error
	local.processes, err = processes.New(&processes.Options{
		Command: p.Processes.Command, Env: p.Processes.Environment, Grace: p.Processes.Grace, Output: output,
		Folder: processFolder(r.file, p.Name),
		Logger: slog.New(&agentLog{out: r.err}).With("pool", p.Name),
	})
	if err != nil {
		local.close()
		return nil, err
	}
	return local, nil
}

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // as others make folders for logs
		return nil, err
	}
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644) //nolint:gosec // the user named it, and others may read it
}

func (l *localPool) close() {
	if l.log != nil {
		_ = l.log.Close() // nobody waits for what instances print
	}
}

// stop ends the supervision of all instances. With drain they finish their jobs and end first, unless a second signal comes.
func (r *agentRun) stop(drain bool) error {
	running := 0
	for _, l := range r.local {
		running += l.processes.State().Running
	}
	if drain && running > 0 && !r.settings.asJSON {
		printf(r.out, "Stopping: waiting for the jobs of %s. Press Ctrl-C again to leave them.\n", plural(running, "instance"))
	}
	errs := make([]error, len(r.local))
	var stopping sync.WaitGroup
	for i, l := range r.local {
		stopping.Go(func() {
			defer l.close()
			if drain {
				errs[i] = r.stopped(l, l.processes.Drain(r.finish))
			} else {
				errs[i] = l.processes.Close()
			}
		})
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// stopped explains what came of the end of a pool.
func (r *agentRun) stopped(l *localPool, err error) error {
	left := l.processes.State().Draining
	switch {
	case err == nil, r.finish.Err() != nil && left == 0:
		return nil
	case r.finish.Err() != nil:
		return interruption{fmt.Errorf("interrupted; %s of pool %s left to finish jobs without supervision", plural(left, "instance"), l.name)}
	}
	return fmt.Errorf("pool %s: %w", l.name, err)
}

// interval is how long lies between measurements.
func (r *agentRun) interval() time.Duration {
	const otherwise = 10 * time.Second // of package agent
	return cmp.Or(r.file.Interval, otherwise)
}

func (r *agentRun) printStartup() {
	var text strings.Builder
	fmt.Fprintf(&text, "Scaling %s, measured every %s.\n", plural(len(r.pools), "pool"), span(r.interval()))
	for i, p := range r.pools {
		names := make([]string, len(p.Queues))
		for j, q := range p.Queues {
			names[j] = q.Name().String()
		}
		fmt.Fprintf(&text, "  %s: jobs of %s; ", p.Name, strings.Join(names, ", "))
		switch local := r.file.Pools[i].Processes; {
		case r.settings.dryRun:
			text.WriteString("nothing is changed\n")
		case r.file.Pools[i].Azure != "":
			fmt.Fprintf(&text, "Azure %s\n", r.file.Pools[i].Azure)
		case local == nil:
			text.WriteString("nothing is changed: the file has neither processes nor azure\n")
		default:
			fmt.Fprintf(&text, "processes %s\n", strings.Join(local.Command, " "))
		}
	}
	if r.settings.dryRun {
		fmt.Fprintf(&text, "This is a dry run of %s. Stop it with Ctrl-C.\n", span(r.settings.length))
	} else {
		text.WriteString("Stop it with Ctrl-C.\n")
	}
	printf(r.out, "%s", escapeControls(text.String()))
}

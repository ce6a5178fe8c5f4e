package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/wakeup"
)

// Agent scales pools. Make one with [New]. It is safe for concurrent use.
type Agent struct {
	options Options
	pools   []*pool
	hooks   *hook.Guard

	halted context.Context // ended by Halt
	halt   context.CancelFunc

	mu      sync.Mutex
	started bool // guarded by mu
}

// New returns an agent, or everything that is wrong with the pools and options. It sends no request and opens no file.
func New(pools []Pool, o *Options) (*Agent, error) {
	options, problems := o.withDefaults()
	problems = append(problems, check(pools)...)
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	a := &Agent{options: options}
	a.halted, a.halt = context.WithCancel(context.Background())
	a.hooks = hook.New(func(f hook.Failure) {
		options.Logger.Error("a hook of the agent failed", "hook", f.Hook, "panic", f.Value, "times", f.Times, "stack", string(f.Stack))
	})
	for _, p := range pools {
		made, err := newPool(a, p)
		if err != nil {
			return nil, fmt.Errorf("pool %s: %w", p.Name, err)
		}
		a.pools = append(a.pools, made)
	}
	return a, nil
}

// Run measures and decides until ctx ends, and then returns nil. Each pool is measured at once, and then each Interval, by a
// goroutine of its own. At the stop the history is kept, and a call of an actuator that runs has 5 s to end.
// Instances go on running.
//
// Run returns early with an error if Folder cannot be used, or if another agent uses it for one of the pools. An agent runs once.
func (a *Agent) Run(ctx context.Context) error {
	a.mu.Lock()
	started := a.started
	a.started = true
	a.mu.Unlock()
	if started {
		return errors.New("run the agent: it has run before: make another one with agent.New")
	}
	for _, p := range a.pools {
		if err := p.open(); err != nil {
			a.close()
			return err
		}
	}
	defer a.close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(a.halted, stop)()
	var running sync.WaitGroup
	for _, p := range a.pools {
		running.Go(func() { p.run(ctx) })
	}
	running.Wait()
	return a.leave()
}

// leave waits for calls that hang, for stopGrace at most or until a halt, and returns an error for each that is left behind.
func (a *Agent) leave() error {
	end, enough := context.WithTimeout(context.Background(), stopGrace)
	defer enough()
	defer context.AfterFunc(a.halted, enough)()
	var left []error
	for _, p := range a.pools {
		left = append(left, p.left(end.Done())...)
	}
	return errors.Join(left...)
}

// Halt makes Run return without waiting for a call of an actuator that runs. It does not wait, and may be called at any time.
func (a *Agent) Halt() { a.halt() }

// close releases what open has taken.
func (a *Agent) close() {
	for _, p := range a.pools {
		p.close()
	}
}

func (a *Agent) report(e *Error) {
	if f := a.options.OnError; f != nil {
		a.hooks.Call("OnError", func() { f(e) })
	}
}

func (a *Agent) logger(pool string) *slog.Logger { return a.options.Logger.With("pool", pool) }

// Options configure an [Agent]. Nil and the zero value mean the defaults.
type Options struct {
	// Interval is how long lies between measurements, at least 1 s. Defaults to 10 s.
	Interval time.Duration

	// Wakeups says when work comes, so that a pool of no instances is started at once. The agent takes part only while a pool has none,
	// so that events reach the workers otherwise. Defaults to none: the next measurement finds the work.
	Wakeups wakeup.Source

	// Folder is where the history of each pool is kept for the next start. It is created if it is missing. Defaults to none: the history is
	// lost with the process, and the next agent removes nothing until it has seen enough.
	Folder string

	// Prices are what instances and requests cost, for [Summary]. Defaults to unknown.
	Prices Prices

	// OnDecision is called after each decision, with the error if it could not be carried out. It is called concurrently for several pools, and
	// should not block: its pool waits. A panic in it is logged. Defaults to none.
	OnDecision func(Decided)

	// OnError receives every error, as an [*Error]. It is called concurrently for several pools, and should not block: its
	// pool waits. A panic in it is logged. Defaults to none.
	OnError func(error)

	// Logger logs each change of the number of instances, and errors: the first of a kind, one every ten minutes while it lasts, and its end.
	// Defaults to slog.Default().
	Logger *slog.Logger
}

// Prices are what things cost, in any one currency. The zero value means that nothing is known.
type Prices struct {
	// InstanceHour is the price of one instance for one hour. Zero means that it is unknown.
	InstanceHour float64 `json:"instance_hour,omitempty"`

	// Requests is the price of requests to queues. Its zero value means that it is unknown.
	Requests metered.Price `json:"requests"`
}

const (
	defaultInterval = 10 * time.Second
	minInterval     = time.Second
	requestTimeout  = 5 * time.Second  // of a request to a queue, and of Actuator.Instances
	scaleTimeout    = 30 * time.Second // of Actuator.Scale
	patience        = time.Second      // how long after the end of its context a call may return
	stopGrace       = 5 * time.Second  // how long after the stop an actuator's call may return
)

// withDefaults returns the options with defaults filled in, and what is wrong with them.
func (o *Options) withDefaults() (all Options, problems []error) {
	if o != nil {
		all = *o
	}
	all.Interval = cmp.Or(all.Interval, defaultInterval)
	all.Logger = cmp.Or(all.Logger, slog.Default())
	if all.Interval < minInterval {
		problems = append(problems, fmt.Errorf("the Interval %v is too short: use %v or more, such as 10*time.Second", all.Interval, minInterval))
	}
	if all.Prices.InstanceHour < 0 {
		problems = append(problems, fmt.Errorf("the price Prices.InstanceHour %v is negative", all.Prices.InstanceHour))
	}
	return all, problems
}

// Actuator makes the number of instances of one pool what it should be. The agent calls one method of an actuator at a time, and
// contains its panics.
type Actuator interface {
	// Instances returns how many instances there are, those included that are starting, and not those that are stopping. The
	// agent asks at each measurement and trusts the platform, not its memory. The context ends after 5 s.
	Instances(ctx context.Context) (int, error)

	// Scale asks for n instances. It does not wait until they work, or until surplus ones have ended: those finish their
	// jobs first. It may be called again with the same number. The context ends after 30 s. After an error the agent
	// decides anew at the next measurement.
	Scale(ctx context.Context, n int) error
}

// Pool are instances of one program that take jobs from the same queues.
type Pool struct {
	// Name is how the pool is called in sentences, logs and files: 1…100 letters, digits, '-', '_' and '.', of which the first is
	// a letter or a digit. It must be unique, also without regard to case.
	Name string

	// Queues are where the instances take jobs from. Figures are sums. At least one. Two pools with an Actuator must not have
	// the same queue: each would start instances for its messages.
	Queues []queue.Queue

	// Beacons are the control queues in which the instances report, see package beacon. Pools may share them. Defaults to none:
	// figures that only instances know are unknown, and the policy's own are used.
	Beacons []queue.Queue

	// Policy decides. Defaults to that of its zero value.
	Policy scaling.Policy

	// Actuator makes it so. Defaults to none: a dry run, which only decides.
	Actuator Actuator
}

// poolName matches what Pool.Name may be.
var poolName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// check returns everything that is wrong with the pools.
func check(pools []Pool) (problems []error) {
	if len(pools) == 0 {
		return []error{errors.New("there is no pool: pass at least one")}
	}
	seen := map[string]int{}
	jobs := map[queue.Name]bool{} // the queues of all pools
	for _, p := range pools {
		for _, q := range p.Queues {
			if !hook.IsNil(q) {
				jobs[identity(q)] = true
			}
		}
	}
	taken := map[queue.Name]int{} // by pools with an actuator
	for i, p := range pools {
		wrong := func(format string, args ...any) {
			problems = append(problems, fmt.Errorf("pool %d (%q): %w", i+1, p.Name, fmt.Errorf(format, args...)))
		}
		if !poolName.MatchString(p.Name) {
			wrong("Name must have 1 to 100 letters, digits, '-', '_' and '.', and begin with a letter or a digit")
		}
		if first, found := seen[strings.ToLower(p.Name)]; found {
			wrong("Name is also that of pool %d: names must be unique, without regard to case", first)
		} else {
			seen[strings.ToLower(p.Name)] = i + 1
		}
		if len(p.Queues) == 0 {
			wrong("Queues is empty: name at least the queue that the instances take jobs from")
		}
		checkQueues("Queues", p.Queues, wrong)
		checkQueues("Beacons", p.Beacons, wrong)
		for j, q := range p.Beacons {
			if !hook.IsNil(q) && jobs[identity(q)] {
				wrong("Beacons[%d] is %v, from which instances take jobs: reports need a queue of their own", j, q.Name())
			}
		}
		for j, q := range p.Queues {
			if p.Actuator == nil || hook.IsNil(q) {
				continue // a dry run starts nothing
			}
			name := identity(q)
			if first, found := taken[name]; found && first != i {
				wrong("Queues[%d] is %v, which pool %d (%q) has already: each would start instances for the same messages; put it into one pool",
					j, q.Name(), first+1, pools[first].Name)
				continue
			}
			taken[name] = i
		}
		if p.Actuator != nil && hook.IsNil(p.Actuator) {
			wrong("Actuator is a nil %T: leave it out for a dry run", p.Actuator)
		}
		if err := p.Policy.Check(); err != nil {
			wrong("%w", err)
		}
		if (p.Policy.CPU > 0 || p.Policy.Memory > 0) && len(p.Beacons) == 0 {
			wrong("the policy bounds CPU or memory, which only instances report: name their control queue in Beacons")
		}
	}
	return problems
}

// identity returns the name by which two queues are the same: Azure has the names of accounts in lower case.
func identity(q queue.Queue) queue.Name {
	name := q.Name()
	name.Account = strings.ToLower(name.Account)
	return name
}

// checkQueues looks for queues that are nil or there twice: their messages would count twice.
func checkQueues(field string, queues []queue.Queue, wrong func(string, ...any)) {
	seen := map[queue.Name]int{}
	for i, q := range queues {
		if hook.IsNil(q) {
			wrong("%s[%d] is nil", field, i)
			continue
		}
		name := identity(q)
		if first, found := seen[name]; found {
			wrong("%s[%d] is %v like %s[%d]: its messages would count twice", field, i, q.Name(), field, first)
			continue
		}
		seen[name] = i
	}
}

// Package killtest kills processes in tests: simulated ones at a step of their work, and real ones.
package killtest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/table"
)

// Process is a process of this test binary.
type Process struct {
	command *exec.Cmd
	reading sync.WaitGroup
}

// childVariable tells a test binary that Start has started it.
const childVariable = "MILLRACE_KILLTEST_CHILD"

// A process ends when its standard input does, so that a test binary that is killed leaves none behind.
func init() {
	if os.Getenv(childVariable) == "" {
		return
	}
	go func() { // runs as long as the process
		_, _ = io.Copy(io.Discard, os.Stdin) // however it ended
		os.Exit(1)                           //nolint:forbidigo // this process has no other main
	}()
}

// Start starts the test binary without any test, with variables in its environment that tell its
// TestMain what to do, and sends the lines of its output to a channel.
func Start(t *testing.T, output chan<- string, variables ...string) *Process {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	p := &Process{command: exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")}
	p.command.Env = append(os.Environ(), childVariable+"=1")
	p.command.Env = append(p.command.Env, variables...)
	p.command.Stderr = os.Stderr
	out, err := p.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err = p.command.StdinPipe(); err != nil { // it is open as long as this process lives
		t.Fatal(err)
	}
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	p.reading.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			output <- lines.Text()
		}
	})
	return p
}

// Kill kills the process, like a machine failure, and waits until all of its output has been sent.
func (p *Process) Kill(t *testing.T) {
	t.Helper()
	if err := p.command.Process.Kill(); err != nil {
		t.Error(err)
	}
	p.reading.Wait()
	_ = p.command.Wait() // it was killed
}

// Killer kills a simulated process at its nth step of a kind, before or after that takes effect. A
// step is a request that does something, or a handler. The zero value kills nothing. It is safe for
// concurrent use.
type Killer struct {
	// Kind is that of the step. Empty for a process that is not killed.
	Kind string

	// Nth is the number of the step among those of its kind, from 1.
	Nth int

	// After says that the step takes effect before the process is killed.
	After bool

	mu    sync.Mutex
	steps int  // of the kind so far; guarded by mu
	dead  bool // guarded by mu
}

// ErrKilled is the error of every step of a process that was killed.
var ErrKilled = errors.New("the process was killed")

// Step takes a step by calling act. It returns ErrKilled if the process was killed before or at the step.
func (k *Killer) Step(kind string, act func() error) error {
	k.mu.Lock()
	if k.dead {
		k.mu.Unlock()
		return ErrKilled
	}
	if kind == k.Kind {
		k.steps++
		k.dead = k.steps == k.Nth
	}
	now := k.dead
	k.mu.Unlock()
	if now && !k.After {
		return ErrKilled
	}
	err := act()
	if k.Dead() { // also if another step was the last while this one was under way
		return ErrKilled
	}
	return err
}

// Dead reports whether the process was killed.
func (k *Killer) Dead() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead
}

// Every runs a test for every step of these kinds that its process takes, before and after the step takes
// effect: kill runs a process with the killer and reports whether it was killed. Every returns the
// kinds at which no process was.
func Every(kinds []string, kill func(*Killer) (killed bool)) (never []string) {
	for _, kind := range kinds {
		for _, after := range []bool{false, true} {
			for n, killed := 1, true; killed; n++ {
				killed = kill(&Killer{Kind: kind, Nth: n, After: after})
				if !killed && n == 1 {
					never = append(never, kind)
				}
			}
		}
	}
	return never
}

// Queue is the queue of a process that is killed. Its requests are steps named "create", "enqueue",
// "dequeue", "update" and "delete".
type Queue struct {
	queue.Queue
	Killer *Killer
}

// Sibling returns a queue of the same process.
func (q *Queue) Sibling(suffix string) queue.Queue {
	return &Queue{q.Queue.Sibling(suffix), q.Killer}
}

// Properties is no step: it changes nothing.
func (q *Queue) Properties(ctx context.Context) (queue.Properties, error) {
	return step(q.Killer, "", func() (queue.Properties, error) { return q.Queue.Properties(ctx) })
}

// Create is a step.
func (q *Queue) Create(ctx context.Context, metadata map[string]string) error {
	return q.Killer.Step("create", func() error { return q.Queue.Create(ctx, metadata) })
}

// Enqueue is a step.
func (q *Queue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	return step(q.Killer, "enqueue", func() (queue.Message, error) { return q.Queue.Enqueue(ctx, text, o) })
}

// Dequeue is a step only if it brings something: polls of an empty queue do nothing.
func (q *Queue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	if q.Killer.Dead() {
		return nil, ErrKilled
	}
	batch, err := q.Queue.Dequeue(ctx, n, visibility)
	if err == nil && len(batch) > 0 {
		err = q.Killer.Step("dequeue", func() error { return nil })
	}
	if err != nil {
		return nil, err
	}
	return batch, nil
}

// Update is a step.
func (q *Queue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	return step(q.Killer, "update", func() (queue.Lease, error) { return q.Queue.Update(ctx, l, text, visibility) })
}

// Delete is a step.
func (q *Queue) Delete(ctx context.Context, l queue.Lease) error {
	return q.Killer.Step("delete", func() error { return q.Queue.Delete(ctx, l) })
}

// Table is a table of a process that is killed. Its changes are steps named "insert", "update", "delete" and
// "apply". They have no answer if the process was killed meanwhile.
type Table struct {
	table.Store
	Killer *Killer
}

// Get is no step: it changes nothing.
func (t *Table) Get(ctx context.Context, k table.Key) (table.Entity, error) {
	return step(t.Killer, "", func() (table.Entity, error) { return t.Store.Get(ctx, k) })
}

// Query is no step: it changes nothing.
func (t *Table) Query(ctx context.Context, q table.Query) (table.Page, error) {
	return step(t.Killer, "", func() (table.Page, error) { return t.Store.Query(ctx, q) })
}

// Insert is a step.
func (t *Table) Insert(ctx context.Context, e table.Entity) (table.ETag, error) {
	return step(t.Killer, "insert", func() (table.ETag, error) { return t.Store.Insert(ctx, e) })
}

// Update is a step.
func (t *Table) Update(ctx context.Context, e table.Entity) (table.ETag, error) {
	return step(t.Killer, "update", func() (table.ETag, error) { return t.Store.Update(ctx, e) })
}

// Delete is a step.
func (t *Table) Delete(ctx context.Context, k table.Key, etag table.ETag) error {
	return t.Killer.Step("delete", func() error { return t.Store.Delete(ctx, k, etag) })
}

// Apply is a step.
func (t *Table) Apply(ctx context.Context, changes []table.Change) ([]table.ETag, error) {
	return step(t.Killer, "apply", func() ([]table.ETag, error) { return t.Store.Apply(ctx, changes) })
}

func step[T any](k *Killer, kind string, act func() (T, error)) (T, error) {
	var result T
	err := k.Step(kind, func() (err error) { result, err = act(); return err })
	if err != nil {
		var none T
		return none, err
	}
	return result, nil
}

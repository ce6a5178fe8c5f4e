package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/agent"
	"github.com/millrace/millrace/wakeup"
)

// The worlds of this file have an agent that scales workers: it is killed and started again, its requests fail, the platform loses
// its answers, and workers are killed. No job may be lost, no bound broken, and in the end there must be as few instances as the
// policy allows.

// scaledWorld is one of them.
type scaledWorld struct {
	dice     dice
	birth    time.Time
	horizon  time.Duration // until then there are faults
	engine   *localqueue.Engine
	jobs     queue.Queue
	control  queue.Queue
	policy   scaling.Policy
	slots    int
	startup  time.Duration
	handling time.Duration
	bus      *lossyBus // or nil

	mu         sync.Mutex
	instances  []*scaledInstance // guarded by mu
	started    int               // guarded by mu
	calls      int               // guarded by mu
	changes    int               // guarded by mu
	most       int               // guarded by mu
	done       map[string]int    // guarded by mu
	violations []string          // guarded by mu
	all        sync.WaitGroup
}

// scaledInstance is one instance. The platform starts it anew when it dies.
type scaledInstance struct {
	stop context.CancelFunc
	wire *faultqueue.Queue // guarded by scaledWorld.mu; nil while it starts
}

// lossyBus loses some of the events.
type lossyBus struct {
	wakeup.Bus
	dice dice
}

func (b *lossyBus) tell(q queue.Name, n int) {
	if !b.dice.chance(0.3, "event", str(n)) {
		_ = b.Publish(context.Background(), q, 0, time.Time{})
	}
}

var errPlatform = errors.New("the platform does not answer")

func (w *scaledWorld) faulty() bool { return time.Since(w.birth) < w.horizon }

// roll returns a number from 0 to 1 for one call of the platform.
func (w *scaledWorld) roll(what string) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	if !w.faulty() {
		return 1
	}
	return w.dice.unit(what, str(w.calls))
}

// Instances implements [agent.Actuator].
func (w *scaledWorld) Instances(ctx context.Context) (int, error) {
	switch u := w.roll("instances"); {
	case u < 0.05:
		return 0, errPlatform
	case u < 0.08:
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return w.count(), nil
}

// Scale implements [agent.Actuator]. It may do nothing, or do it without an answer, late, or before it panics.
func (w *scaledWorld) Scale(ctx context.Context, n int) error {
	switch u := w.roll("scale"); {
	case u < 0.1:
		return errPlatform
	case u < 0.2:
		w.set(n)
		return errPlatform
	case u < 0.25:
		<-ctx.Done()
		w.set(n)
		return ctx.Err()
	case u < 0.3:
		w.set(n)
		panic(errPlatform)
	case u < 0.35: // it ignores its context for a while
		time.Sleep(w.dice.within(time.Second, 2*time.Minute, "ignores", fmt.Sprint(u)))
	}
	w.set(n)
	return nil
}

func (w *scaledWorld) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.instances)
}

func (w *scaledWorld) set(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes++
	if least := w.least(); n > w.policy.Max || n < least {
		w.violations = append(w.violations, fmt.Sprintf("Scale(%d) is outside %d…%d", n, least, w.policy.Max))
	}
	for len(w.instances) < n {
		ctx, stop := context.WithCancel(context.Background())
		one := &scaledInstance{stop: stop}
		w.instances = append(w.instances, one)
		w.all.Go(func() {
			for ctx.Err() == nil {
				w.live(ctx, one)
			}
		})
	}
	for len(w.instances) > n {
		last := len(w.instances) - 1
		w.instances[last].stop()
		w.instances = w.instances[:last]
	}
	w.most = max(w.most, n)
}

func (w *scaledWorld) least() int {
	if w.policy.ToZero {
		return 0
	}
	return max(w.policy.Min, 1)
}

// live is one life of an instance, from its start until it is stopped or dies.
func (w *scaledWorld) live(ctx context.Context, one *scaledInstance) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(w.startup):
	}
	w.mu.Lock()
	w.started++
	name := "instance " + str(w.started)
	wire := must(faultqueue.New(w.jobs, w.faults(name, time.Since(w.birth))))
	reports := must(faultqueue.New(w.control, w.faults(name+" reports", time.Since(w.birth))))
	one.wire = wire
	w.mu.Unlock()
	l := listener.New(wire, w.handle, &listener.Options[string]{
		Concurrency: w.slots, Beacon: listener.BeaconOptions{Queue: reports, Instance: name}, Logger: slog.New(slog.DiscardHandler),
		Poison: poison.Policy{MaxAttempts: 1000},
	})
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { // a dead process does nothing more
		select {
		case <-wire.Died():
			reports.Kill()
			l.Halt()
		case <-over:
		}
	})
	alive, end := context.WithCancel(ctx)
	watching.Go(func() {
		select {
		case <-wire.Died():
			end()
		case <-over:
		}
	})
	_ = l.Run(alive)
	close(over)
	end()
	watching.Wait()
	wire.Wait()
	reports.Wait()
}

// faults are those of one process that begins at that time: a bad network until the horizon.
func (w *scaledWorld) faults(who string, begin time.Duration) *faultqueue.Options {
	o := &faultqueue.Options{Seed: uint64(w.dice)*1000 + uint64(len(who)) + uint64(begin), Latency: faultqueue.Range{Min: time.Millisecond, Max: 100 * time.Millisecond}}
	if left := w.horizon - begin; left > 0 {
		bad := faultqueue.Rates{Throttled: 0.03, Unavailable: 0.03, LostRequest: 0.03, LostResponse: 0.03, Late: 0.01, Slow: 0.01}
		phase := faultqueue.Phase{For: left, Faults: map[faultqueue.Op]faultqueue.Rates{}}
		for _, op := range []faultqueue.Op{faultqueue.Enqueue, faultqueue.Dequeue, faultqueue.Peek, faultqueue.Update, faultqueue.Delete, faultqueue.Properties} {
			phase.Faults[op] = bad
		}
		o.Phases = []faultqueue.Phase{phase}
	}
	return o
}

func (w *scaledWorld) handle(ctx context.Context, m *listener.Message[string]) error {
	select {
	case <-time.After(w.handling):
	case <-ctx.Done():
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[m.Body]++
	return nil
}

// send sends jobs in floods until the horizon, and returns how many.
func (w *scaledWorld) send() (sent int) {
	floods := w.dice.number(1, 4, "floods")
	for f := range floods {
		time.Sleep(w.dice.within(0, w.horizon/time.Duration(floods), "flood", str(f)))
		for range w.dice.number(1, 200, "jobs", str(f)) {
			if _, err := w.jobs.Enqueue(context.Background(), fmt.Sprintf("%q", "job "+str(sent)), nil); err != nil {
				panic(err)
			}
			sent++
		}
		if w.bus != nil {
			w.bus.tell(w.jobs.Name(), f)
		}
	}
	return sent
}

// killWorkers kills instances now and then until the horizon.
func (w *scaledWorld) killWorkers() {
	for i := range w.dice.number(0, 8, "kills") {
		time.Sleep(w.dice.within(0, w.horizon/8, "kill", str(i)))
		w.mu.Lock()
		if n := len(w.instances); n > 0 {
			if wire := w.instances[w.dice.number(0, n-1, "victim", str(i))].wire; wire != nil {
				wire.Kill()
			}
		}
		w.mu.Unlock()
	}
}

// runAgents runs one agent after the other until end is closed: each is killed after a while, and the next starts later. The last one stays.
func (w *scaledWorld) runAgents(t *testing.T, end <-chan struct{}) {
	folder := ""
	if w.dice.chance(0.6, "folder") {
		folder = t.TempDir()
	}
	for life := 0; ; life++ {
		who := "agent " + str(life)
		jobs, control := must(faultqueue.New(w.jobs, w.faults(who, time.Since(w.birth)))), must(faultqueue.New(w.control, w.faults(who+" control", time.Since(w.birth))))
		o := &agent.Options{Folder: folder, Logger: slog.New(slog.DiscardHandler)}
		if w.bus != nil {
			o.Wakeups = &w.bus.Bus
		}
		a, err := agent.New([]agent.Pool{{
			Name: "pool", Queues: []queue.Queue{jobs}, Beacons: []queue.Queue{control}, Policy: w.policy, Actuator: w,
		}}, o)
		if err != nil {
			panic(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		last := !w.faulty()
		dies := make(<-chan time.Time)
		if !last {
			dies = time.After(w.dice.within(time.Second, 5*time.Minute, who, "life"))
		}
		select {
		case <-end:
			stop()
			if err := <-done; err != nil {
				w.violate("the last agent: %v", err)
			}
			jobs.Wait()
			control.Wait()
			return
		case <-dies:
		}
		before, _ := os.ReadFile(filepath.Join(folder, "pool.history.jsonl"))
		jobs.Kill()
		control.Kill()
		stop()
		a.Halt()
		<-done // a call of the platform may be left behind
		if before != nil && w.dice.chance(0.8, who, "forgets") {
			if err := os.WriteFile(filepath.Join(folder, "pool.history.jsonl"), before, 0o600); err != nil {
				panic(err)
			}
		}
		jobs.Wait()
		control.Wait()
		time.Sleep(w.dice.within(0, time.Minute, who, "absence"))
	}
}

func (w *scaledWorld) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations = append(w.violations, fmt.Sprintf(format, args...))
}

// playScaled plays the world of a seed.
func playScaled(t *testing.T, d dice) *scaledWorld {
	w := &scaledWorld{
		dice: d, birth: time.Now(), horizon: d.within(5*time.Minute, 15*time.Minute, "horizon"),
		engine: must(localqueue.New(&localqueue.Options{Seed: uint64(d) + 1})),
		slots:  d.number(1, 8, "slots"), startup: d.steep(time.Second, time.Minute, "startup"), handling: d.steep(50*time.Millisecond, 10*time.Second, "handling"),
		done: map[string]int{},
	}
	w.policy = scaling.Policy{
		ToZero: d.chance(0.5, "to zero"), Max: d.number(1, 8, "max"), Target: d.within(10*time.Second, 2*time.Minute, "target"),
		Start: w.startup, DownAfter: d.within(time.Minute, 10*time.Minute, "down after"),
	}
	if d.chance(0.5, "wake-ups") {
		w.bus = &lossyBus{dice: d}
	}
	w.jobs, w.control = w.engine.Queue(queue.Name{Account: "world", Queue: "jobs"}), w.engine.Queue(queue.Name{Account: "world", Queue: "control"})
	for _, q := range []queue.Queue{w.jobs, w.control} {
		if err := q.Create(context.Background(), nil); err != nil {
			panic(err)
		}
	}
	end := make(chan struct{})
	var around sync.WaitGroup
	around.Go(w.killWorkers)
	around.Go(func() { w.runAgents(t, end) })
	sent := w.send()
	time.Sleep(w.horizon - time.Since(w.birth))
	// Without faults, one instance with one slot would end all that is left in that time, and leases of the dead run out.
	calm := 10*time.Minute + time.Duration(sent)*w.handling
	time.Sleep(calm)
	// The agent may have begun late, and removes nothing before it has seen enough.
	time.Sleep(2*w.policy.DownAfter + 10*time.Minute)
	w.audit(sent)
	close(end)
	around.Wait()
	w.mu.Lock()
	for _, one := range w.instances {
		one.stop()
	}
	w.instances = nil
	w.mu.Unlock()
	w.all.Wait()
	return w
}

// audit looks for broken promises.
func (w *scaledWorld) audit(sent int) {
	p, err := w.jobs.Properties(context.Background())
	if err != nil || p.Depth != 0 {
		w.violate("the queue has %d messages, %v", p.Depth, err)
	}
	w.mu.Lock()
	done, n, least := len(w.done), len(w.instances), w.least()
	w.mu.Unlock()
	if done != sent {
		w.violate("%d jobs of %d were handled", done, sent)
	}
	if n != least {
		w.violate("at the end there are %d instances, want %d", n, least)
	}
}

// TestScaledWorkersLoseNoJob plays worlds with an agent: agents and workers are killed, requests and answers are lost.
func TestScaledWorkersLoseNoJob(t *testing.T) {
	if testing.Short() {
		t.Skip("a long scenario")
	}
	first, last := uint64(1), max(worlds()/12, 1)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	jobs, changes, most := 0, 0, 0
	for n := first; n <= last; n++ {
		var w *scaledWorld
		synctest.Test(t, func(t *testing.T) { w = playScaled(t, dice(n)) })
		for _, violation := range w.violations {
			t.Errorf("seed %d (go test ./internal/simulation -run %s -seed %d): %s", n, t.Name(), n, violation)
		}
		jobs, changes, most = jobs+len(w.done), changes+w.changes, max(most, w.most)
	}
	t.Logf("%d worlds, %d jobs, %d changes, %d instances at most", last-first+1, jobs, changes, most)
	if *seed == 0 && (jobs == 0 || changes == 0 || most < 2) {
		t.Error("nothing happened")
	}
}

package processes

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/retry"
)

// keeper supervises the instances. One goroutine has all of it: it looks at each process now and then, does what is due, and reads what
// they write. It never waits for anything but the time and requests.
type keeper struct {
	options   *Options
	timing    timing
	folder    *folder
	processes *Processes

	instances map[int]*instance // by number
	wanted    int
	state     State // the counts that are not those of instances

	synced    int       // what was wanted when the folder was written last; -1 for never
	unsaved   bool      // the folder does not have what is wanted, or who drains
	saveDue   time.Time // when to try again after a failure
	saveWaits *retry.Waits

	lines    chan []byte   // to the writer
	written  chan struct{} // closed when the writer has ended
	hooks    *hook.Guard
	closing  bool          // 0 instances are wanted, for ever
	empty    chan struct{} // closed when there is no process any more; nil unless somebody waits
	stopping bool
}

// waitingChunks is how much output may wait for the writer. What comes on top waits in the files.
const waitingChunks = 16

func newKeeper(o *Options, t timing, f *folder, p *Processes) *keeper {
	k := &keeper{
		options: o, timing: t, folder: f, processes: p, synced: -1,
		instances: make(map[int]*instance), saveWaits: retry.NewWaits("state", t.restart, t.maxRestart),
		lines: make(chan []byte, waitingChunks), written: make(chan struct{}),
	}
	k.hooks = hook.New(func(failure hook.Failure) {
		o.Logger.Error("Output has panicked", "value", failure.Value, "stack", string(failure.Stack))
	})
	return k
}

// findInstances finds the processes of the former agent, and makes them as many as were wanted.
func (k *keeper) findInstances() error {
	before, err := k.folder.read()
	if err != nil {
		return err
	}
	numbers, err := k.folder.numbers()
	if err != nil {
		return err
	}
	for _, number := range numbers {
		if err := k.adopt(number, before); err != nil {
			return fmt.Errorf("find instance %d in %s: %w", number, k.folder.path, err)
		}
	}
	if before != nil {
		k.wanted = before.Wanted
	} else {
		k.wanted = len(k.live())
	}
	k.choose()
	if err := k.save(); err != nil { // before anything is started: a folder that cannot be written is of no use
		return err
	}
	_ = k.start() // which has reported it, and goes on trying
	k.publish()
	return nil
}

// adopt takes over the process of a former agent, if it runs.
func (k *keeper) adopt(number int, before *kept) error {
	p, err := find(k.folder.root, lockName(number))
	if ignoreMissing(err) != nil {
		return err
	}
	if p == nil {
		return k.bury(number)
	}
	i := newInstance(number, k.timing)
	i.process, i.phase, i.started = p, working, startedAt(k.folder.root, number)
	k.instances[number] = i
	k.state.Adopted++
	if i.output, err = openOutput(k.folder.root, number, true); err != nil {
		return err
	}
	if before != nil {
		if told, found := before.Draining[number]; found {
			// Nobody knows how long it has had: clocks jump. If it is not certain that it was told, because the agent was killed just then,
			// it is not told for that long: told twice, a program ends without finishing its jobs.
			i.phase, i.told, i.due = draining, told, time.Now().Add(k.options.Grace)
		}
	}
	k.options.Logger.Info("instance found", "instance", number, "process", p.pid, "draining", i.phase == draining)
	return nil
}

// bury reports an instance that has ended while no agent ran, and removes its files.
func (k *keeper) bury(number int) error {
	o, err := openOutput(k.folder.root, number, true)
	if err != nil {
		return err
	}
	o.from = 0
	k.options.Logger.Info("instance has ended while no agent ran", "instance", number, "output", o.last())
	return errors.Join(o.file.Close(), k.folder.root.Remove(outputName(number)), ignoreMissing(k.folder.root.Remove(lockName(number))))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// run supervises until somebody asks to stop.
func (k *keeper) run() {
	defer close(k.processes.ended)
	go func() { // release waits for it
		defer close(k.written)
		write(guarded{k}, k.lines, func(err error) { k.options.Logger.Error("output of instances cannot be shown", "error", err) })
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	look := k.timing.look
	for !k.stopping {
		select {
		case f := <-k.processes.requests:
			f(k)
			look = k.timing.look
		case <-timer.C:
			look = min(2*look, k.timing.maxLook)
		}
		if k.turn() {
			look = k.timing.look
		}
		timer.Stop()
		if len(k.instances) > 0 || k.unsaved {
			timer.Reset(look)
		}
	}
	k.flush()
	close(k.lines)
	select {
	case <-k.written:
	case <-k.processes.abandon:
	}
	k.release()
}

// guarded is the output, of which no panic ends the writer.
type guarded struct{ k *keeper }

func (g guarded) Write(text []byte) (n int, err error) {
	g.k.hooks.Call("Output", func() { n, err = g.k.options.Output.Write(text) })
	return n, err
}

// release closes all files. The instances run on.
func (k *keeper) release() {
	for _, i := range k.instances {
		i.closeFiles()
	}
	k.folder.close()
}

func (k *keeper) scale(n int) error {
	if k.closing && n > 0 {
		return ErrClosed
	}
	k.wanted = n
	k.choose()
	// Kept before anything is done: a next agent goes on with it.
	saved := k.save()
	started := k.start()
	k.publish()
	return errors.Join(saved, started)
}

func (k *keeper) sorted() []*instance {
	return slices.SortedFunc(maps.Values(k.instances), func(a, b *instance) int { return cmp.Compare(a.number, b.number) })
}

// live returns the instances that are among those wanted.
func (k *keeper) live() []*instance {
	return slices.DeleteFunc(k.sorted(), func(i *instance) bool { return i.phase != working && i.phase != waiting })
}

// choose adds instances that are missing, without starting them, and decides which surplus ones end.
func (k *keeper) choose() {
	live := k.live()
	for number := 1; len(live) < k.wanted; number++ {
		if k.instances[number] == nil {
			i := newInstance(number, k.timing)
			i.due = time.Now()
			k.instances[number] = i
			live = append(live, i)
		}
	}
	slices.SortFunc(live, endsBefore)
	for _, i := range live[:len(live)-k.wanted] {
		if i.phase == waiting {
			k.retire(i)
			continue
		}
		i.phase, i.due = draining, time.Now()
	}
	k.unsaved = true
}

// save keeps what is wanted and who drains.
func (k *keeper) save() error {
	now := kept{Wanted: k.wanted, Draining: map[int]bool{}}
	for _, i := range k.instances {
		if i.phase == draining {
			now.Draining[i.number] = i.told
		}
	}
	err := k.folder.write(now, k.wanted != k.synced)
	if err == nil {
		k.synced = k.wanted
	}
	if k.unsaved = err != nil; k.unsaved {
		k.saveDue = time.Now().Add(k.saveWaits.Next())
	} else {
		k.saveWaits.Reset()
	}
	return err
}

func (k *keeper) start() error {
	var failed []error
	now := time.Now()
	for _, i := range k.sorted() {
		if i.phase == waiting && !i.due.After(now) {
			failed = append(failed, k.startOne(i))
		}
	}
	return errors.Join(failed...)
}

func (k *keeper) startOne(i *instance) error {
	p, err := k.begin(i)
	if err != nil {
		wait := i.waits.Next()
		i.due = time.Now().Add(wait)
		err = fmt.Errorf("start instance %d, %s: %w", i.number, k.options.Command[0], err)
		k.options.Logger.Error("instance cannot be started", "instance", i.number, "error", err, "next_try_in", wait)
		return err
	}
	i.process, i.phase, i.started = p, working, time.Now()
	k.options.Logger.Info("instance started", "instance", i.number, "process", p.pid)
	return nil
}

func (k *keeper) begin(i *instance) (*process, error) {
	if i.output == nil {
		output, err := openOutput(k.folder.root, i.number, false)
		if err != nil {
			return nil, err
		}
		i.output = output
	}
	i.output.begins()
	env := slices.Concat(os.Environ(), k.options.Env, []string{fmt.Sprintf("%s=%d", NumberVariable, i.number)})
	return begin(k.folder.root, lockName(i.number), k.options.Command, env, i.output.file)
}

// turn does what is due, and reports whether anything has happened.
func (k *keeper) turn() (busy bool) {
	now := time.Now()
	for _, i := range k.sorted() {
		switch i.phase {
		case working:
			if done, how := i.process.ended(); done {
				k.endedByItself(i, how)
				busy = true
			}
		case waiting:
			if !i.due.After(now) {
				_ = k.startOne(i) // which has reported it
				busy = true
			}
		case draining:
			busy = k.drainOne(i, now) || busy
		}
	}
	busy = k.follow() || busy
	if k.unsaved && !k.saveDue.After(now) {
		if err := k.save(); err != nil {
			k.options.Logger.Error("the folder of instances cannot be written; the next agent would not know", "error", err)
		}
	}
	k.publish()
	return busy
}

// endedByItself waits to start an instance again.
func (k *keeper) endedByItself(i *instance, how string) {
	ran := time.Since(i.started)
	if ran >= k.timing.steady {
		i.waits.Reset()
	}
	wait := i.waits.Next()
	i.process.close()
	i.process, i.phase, i.due = nil, waiting, time.Now().Add(wait)
	k.state.Restarts++
	k.options.Logger.Warn("instance has ended by itself and is started again", "instance", i.number, "how", how,
		"ran", ran.Round(time.Millisecond), "in", wait.Round(time.Millisecond), "output", i.output.last())
}

// drainOne takes the next step of an instance that drains.
func (k *keeper) drainOne(i *instance, now time.Time) (busy bool) {
	if done, how := i.process.ended(); done {
		k.options.Logger.Info("instance has ended", "instance", i.number, "how", how)
		k.retire(i)
		return true
	}
	if i.killed || i.due.After(now) {
		return false
	}
	if !i.process.known() {
		if !i.warned && now.Sub(i.started) > k.options.Grace {
			i.warned = true
			k.options.Logger.Error("instance cannot be ended: its process id is not in the folder", "instance", i.number, "folder", k.folder.path)
		}
		return false
	}
	if !i.told {
		i.told, i.due = true, now.Add(k.options.Grace)
		k.unsaved = true
		k.report(i, i.process.tell())
		return true
	}
	i.killed = true
	k.state.Killed++
	k.options.Logger.Error("instance is killed: it has not ended within its grace", "instance", i.number, "process", i.process.pid,
		"grace", k.options.Grace, "output", i.output.last())
	k.report(i, i.process.kill())
	return true
}

func (k *keeper) report(i *instance, err error) {
	if err != nil {
		k.options.Logger.Error("instance cannot be told to end", "instance", i.number, "error", err)
	}
}

// retire ends an instance for good. Its number is free when its output was read.
func (k *keeper) retire(i *instance) {
	if i.process != nil {
		i.process.close()
		i.process = nil
	}
	_ = k.folder.root.Remove(lockName(i.number)) // or the next agent finds that nobody holds it
	i.phase = gone
	k.unsaved = true
	if i.output == nil {
		delete(k.instances, i.number)
	}
}

// follow reads what the instances have written, as long as there is room for it.
func (k *keeper) follow() (busy bool) {
	for _, i := range k.sorted() {
		if i.output == nil || len(k.lines) == cap(k.lines) {
			continue
		}
		before := i.output.offset
		if text := i.output.next(); len(text) > 0 {
			k.lines <- text // there is room, and nobody else sends
		}
		if i.output.offset != before {
			busy = true
		} else if i.phase == gone {
			// Its output was read: the number is free.
			if len(i.output.partial) > 0 {
				k.lines <- i.output.rest() // there is room, see above
			}
			i.closeFiles()
			_ = k.folder.root.Remove(outputName(i.number)) // or an instance of the same number does
			delete(k.instances, i.number)
			busy = true
		}
	}
	return busy
}

// flush reads what the instances have written until now, unless it is given up.
func (k *keeper) flush() {
	for _, i := range k.sorted() {
		if i.output == nil {
			continue
		}
		for bound := 0; bound < reclaimAt; bound += chunk { // an instance may write as fast as it is read
			before := i.output.offset
			text := i.output.next()
			if i.output.offset == before {
				break
			}
			if !k.send(text) {
				return
			}
		}
		if len(i.output.partial) > 0 && !k.send(i.output.rest()) {
			return
		}
		if i.phase == gone {
			_ = k.folder.root.Remove(outputName(i.number)) // or the next agent does
		}
	}
}

func (k *keeper) send(text []byte) bool {
	if len(text) == 0 {
		return true
	}
	select {
	case k.lines <- text:
		return true
	case <-k.written: // Output ended the goroutine that called it
		return false
	case <-k.processes.abandon:
		return false
	}
}

// publish makes the state known, and that there is no process any more.
func (k *keeper) publish() {
	s := k.state
	s.Wanted = k.wanted
	for _, i := range k.instances {
		switch i.phase {
		case working:
			s.Running++
		case waiting:
			s.Waiting++
		case draining:
			s.Draining++
		}
	}
	k.processes.state.Store(&s)
	if k.empty != nil && s.Running+s.Waiting+s.Draining == 0 {
		if k.unsaved {
			_ = k.save() // or the next agent finds that none of them runs
		}
		close(k.empty)
		k.empty = nil
	}
}

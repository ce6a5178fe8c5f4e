package processes

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/retry"
)

// keeper supervises the instances. One goroutine has all of it: it looks at each process now and
// then, and does what is due. It waits for nothing but the time and requests.
type keeper struct {
	options   *Options
	timing    timing
	folder    *folder
	processes *Processes

	instances map[int]*instance // by number
	wanted    int
	state     State // the counts that are not those of instances
	homeless  bool  // it was logged that the folder cannot be made again
	failing   bool  // it was logged that instances cannot be started
	warned    bool  // it was logged that one does not hold its lock

	unshown  sync.Once // logs that output cannot be shown
	stopping bool
}

// findInstances finds the processes of the former agent.
func (k *keeper) findInstances() error {
	grace, _ := k.folder.root.ReadFile(graceName) // a new folder has none
	if k.options.Grace == 0 && k.options.Command == nil {
		k.options.Grace, _ = time.ParseDuration(string(grace)) // or the default
	}
	k.options.Grace = cmp.Or(k.options.Grace, time.Minute)
	names, err := k.folder.instances()
	if text := k.options.Grace.String(); err == nil && text != string(grace) {
		err = k.folder.write(graceName, []byte(text)) // a folder that cannot be written is of no use
	}
	if err != nil {
		return err
	}
	for name, number := range names {
		if err := k.adopt(name, number); err != nil {
			return fmt.Errorf("find instance %d in %s: %w", number, k.folder.path, err)
		}
	}
	k.wanted = len(k.live())
	k.publish()
	return nil
}

// adopt takes over the process of a former agent, if it runs.
func (k *keeper) adopt(name string, number int) error {
	p, err := find(k.folder.root, name, k.timing.record)
	if err != nil {
		return err
	}
	o, err := openOutput(k.folder.root, number)
	if err != nil {
		return err
	}
	i := &instance{number: number}
	if p == nil {
		k.options.Logger.Info("instance has ended while no agent ran", "instance", number, "output", o.last())
		k.removeFiles(i)
		return o.file.Close()
	}
	k.add(i)
	o.offset = o.size()
	k.attach(i, p, name, o)
	if info, err := k.folder.root.Stat(name); err == nil {
		i.started = info.ModTime()
	}
	k.state.Adopted++
	if name == drainName(number) {
		// Nobody knows how long it has had, because clocks jump, and whether it was told, because
		// the agent may have been killed just then. It is not told for a grace: told twice, a
		// program ends without finishing its jobs.
		i.phase, i.due = draining, time.Now().Add(k.options.Grace)
	}
	k.options.Logger.Info("instance found", "instance", number, "process", p.pid, "draining", i.phase == draining)
	return nil
}

func (k *keeper) add(i *instance) {
	i.phase, i.due = waiting, time.Now()
	i.waits = retry.NewWaits("instance "+strconv.Itoa(i.number), k.timing.restart, k.timing.maxRestart)
	k.instances[i.number] = i
}

// attach gives an instance its process, and begins to show the output.
func (k *keeper) attach(i *instance, p *process, name string, o *output) {
	i.process, i.name, i.output, i.phase, i.started, i.unlocked = p, name, o, working, time.Now(), 0
	o.look = k.timing.maxLook
	k.processes.outputs.Go(func() { o.follow(fmt.Sprintf("[%d] ", i.number), k.show) })
}

// show passes output on. It is called by several goroutines.
func (k *keeper) show(line string) {
	var err error
	if panicked := hook.Run(func() { _, err = io.WriteString(k.options.Output, line) }); panicked != nil {
		err = fmt.Errorf("the option Output has panicked: %v", panicked.Value)
	}
	if err != nil {
		k.unshown.Do(func() { k.options.Logger.Error("output of instances cannot be shown", "error", err) })
	}
}

// removeFiles removes the files of an instance that has ended. If that fails, the next agent finds
// that it has.
func (k *keeper) removeFiles(i *instance) {
	for _, name := range []string{outputName(i.number), lockName(i.number), drainName(i.number)} {
		_ = k.folder.root.Remove(name)
	}
}

// run supervises until somebody asks to stop.
func (k *keeper) run() {
	defer close(k.processes.ended)
	timer := time.NewTimer(0)
	look := k.timing.look
	for !k.stopping {
		select {
		case f := <-k.processes.requests:
			f(k)
			look = k.timing.look
		case <-timer.C:
			look = min(2*look, k.timing.maxLook)
			if k.turn() {
				look = k.timing.look
			}
		}
		timer.Reset(look)
	}
	k.release()
}

// release lets the next agent have the instances, which run on.
func (k *keeper) release() {
	for _, i := range k.instances {
		i.detach()
	}
	k.folder.close()
}

// scale adds instances that are missing, and lets surplus ones end.
func (k *keeper) scale(n int) {
	k.wanted = n
	live := k.live()
	for _, i := range live[:max(0, len(live)-n)] {
		if i.phase == waiting {
			k.retire(i)
			continue
		}
		i.phase, i.due = draining, time.Now()
	}
	missing := n - len(live)
	for number := 1; missing > 0; number++ {
		if k.instances[number] == nil {
			k.add(&instance{number: number})
			missing--
		}
	}
	k.turn()
}

// live returns the instances that are among those wanted, in the order in which they end.
func (k *keeper) live() []*instance {
	all := slices.SortedFunc(maps.Values(k.instances), endsBefore)
	return slices.DeleteFunc(all, func(i *instance) bool { return i.phase == draining })
}

// mendFolder makes what the next agent needs again if it was deleted: the folder with its lock, or
// files in it.
func (k *keeper) mendFolder() {
	var err error
	mended := k.folder.deleted()
	if mended {
		var f *folder
		if f, err = openFolder(k.folder.path, 0); err == nil {
			k.folder.close()
			k.folder = f
		}
	}
	restore := func(name string, text []byte) {
		if _, missing := k.folder.root.Lstat(name); err == nil && errors.Is(missing, fs.ErrNotExist) {
			mended, err = true, k.folder.write(name, text)
		}
	}
	restore(graceName, []byte(k.options.Grace.String()))
	for _, i := range k.instances {
		if i.process != nil {
			restore(i.name, i.process.record())
		}
	}
	switch {
	case err != nil && !k.homeless:
		k.homeless = true
		k.options.Logger.Error("the folder of instances, or a file in it, was deleted and cannot be made again; the next agent would not find them", "error", err)
	case err == nil && mended:
		k.homeless = false
		k.options.Logger.Warn("the folder of instances, or a file in it, was deleted and is made again", "folder", k.folder.path, "consequence", withoutLock)
	}
}

// turn does what is due, and reports whether anything has happened.
func (k *keeper) turn() (busy bool) {
	k.mendFolder()
	now := time.Now()
	for _, number := range slices.Sorted(maps.Keys(k.instances)) {
		switch i := k.instances[number]; {
		case i.phase == waiting && !i.due.After(now):
			k.startOne(i)
		case i.phase == working && k.endedByItself(i):
		case i.phase == draining && k.drainOne(i, now):
		default:
			continue
		}
		busy = true
	}
	k.publish()
	return busy
}

func (k *keeper) startOne(i *instance) {
	k.removeFiles(i) // what the former process of this number has left behind may have them locked
	var o *output
	var p *process
	name := lockName(i.number)
	lock, err := lockFile(k.folder.root, name)
	if err == nil {
		o, err = openOutput(k.folder.root, i.number)
	}
	if err == nil {
		env := slices.Concat(os.Environ(), k.options.Env, []string{fmt.Sprintf("%s=%d", NumberVariable, i.number)})
		if p, err = begin(k.folder.root, name, lock, k.options.Command, env, o.file); err != nil {
			_ = o.file.Close() // it is empty
		}
	}
	_ = lock.Close() // now only the process has it
	if err == nil {
		k.failing = false
		k.attach(i, p, name, o)
		k.options.Logger.Info("instance started", "instance", i.number, "process", p.pid)
		return
	}
	i.due = time.Now().Add(i.waits.Next())
	if !k.failing { // for other instances and later tries the state must do
		k.failing = true
		k.options.Logger.Error("instance cannot be started; it is tried again", "instance", i.number, "command", k.options.Command[0], "error", err)
	}
}

// endedByItself waits to start an instance again that has ended, and reports whether it has.
func (k *keeper) endedByItself(i *instance) bool {
	locked := i.process.held()
	done, how := i.process.ended()
	switch {
	case !done && locked:
		i.unlocked = 0
		return false
	case !done:
		// One look proves nothing: a process that is about to end releases the lock a little
		// earlier.
		if i.unlocked++; i.unlocked == 2 && !k.warned {
			k.warned = true // so it is with the others, of the same program
			k.options.Logger.Warn("instance does not hold its lock: its program has closed descriptor 3, or its file was deleted",
				"instance", i.number, "process", i.process.pid, "consequence", withoutLock)
		}
		return false
	}
	ran := time.Since(i.started)
	if ran >= k.timing.steady {
		i.waits.Reset()
	}
	wait := i.waits.Next()
	k.options.Logger.Warn("instance has ended by itself and is started again", "instance", i.number, "how", how,
		"ran", ran.Round(time.Millisecond), "in", wait.Round(time.Millisecond), "output", i.output.last())
	i.detach()
	i.phase, i.due = waiting, time.Now().Add(wait)
	k.state.Restarts++
	return true
}

// drainOne takes the next step of an instance that drains, and reports whether there was one.
func (k *keeper) drainOne(i *instance, now time.Time) bool {
	done, how := i.process.ended()
	var err error
	switch {
	case done:
		k.options.Logger.Info("instance has ended", "instance", i.number, "how", how)
		k.retire(i)
	case i.killed || i.due.After(now):
		return false
	case !i.told:
		i.name = drainName(i.number)
		_ = k.folder.root.Rename(lockName(i.number), i.name) // or an agent after this one does not know
		i.told, i.due = true, now.Add(k.options.Grace)
		err = i.process.tell()
	default:
		i.killed = true
		k.state.Killed++
		k.options.Logger.Error("instance is killed: it has not ended within its grace", "instance", i.number, "process", i.process.pid,
			"grace", k.options.Grace, "output", i.output.last())
		err = i.process.kill()
	}
	if err != nil {
		k.options.Logger.Error("instance cannot be told to end", "instance", i.number, "error", err)
	}
	return true
}

// retire ends an instance for good.
func (k *keeper) retire(i *instance) {
	i.detach()
	k.removeFiles(i)
	delete(k.instances, i.number)
}

// publish makes the state known.
func (k *keeper) publish() {
	var of [draining + 1]int
	for _, i := range k.instances {
		of[i.phase]++
	}
	s := k.state
	s.Wanted, s.Running, s.Waiting, s.Draining = k.wanted, of[working], of[waiting], of[draining]
	k.processes.state.Store(&s)
}

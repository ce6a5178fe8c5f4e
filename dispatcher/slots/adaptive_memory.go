package slots

import (
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/resources"
)

// Memory is how much memory is in use, and how much there is, in bytes.
type Memory struct {
	Used  int64
	Limit int64 // 0 if there is none
}

// highMemory is the part of the memory beyond which the limit shrinks. What is left is for the handlers that run already, whose
// need may grow.
const highMemory = 0.8

// calm is how long no reading must have been high before the limit grows again. What handlers need varies, and it is the
// peaks that must fit.
const calm = time.Minute

// memoryInterval is how long a reading of the memory counts.
const memoryInterval = 100 * time.Millisecond

// reading is what was last read of the memory. The lock of the limit guards it.
type reading struct {
	Memory
	at   time.Time // when it began; zero if it was never read
	busy bool      // it is being read
	high time.Time // when it was last high; zero if it never was
}

// part returns the part of the memory that is in use, or 0 if that is unknown or there is no limit.
func (r *reading) part() float64 {
	if r.Limit <= 0 {
		return 0
	}
	return float64(r.Used) / float64(r.Limit)
}

// isHigh reports whether too much memory is in use.
func (r *reading) isHigh() bool { return r.part() > highMemory }

// forbidsGrowth reports whether too much memory was in use lately.
func (r *reading) forbidsGrowth() bool { return !r.high.IsZero() && time.Since(r.high) < calm }

// lookAtMemory reads the memory, unless that was done a moment ago, and shrinks the limit if too much is in use.
func (l *Adaptive) lookAtMemory() {
	if l.options.Memory == nil || !l.beginReading() {
		return
	}
	var now Memory
	var err error
	failure := hook.Run(func() { now, err = l.options.Memory() })
	if failure != nil {
		l.failed("Memory", failure)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.memory.busy = false
	switch {
	case failure != nil:
		l.memory.Memory = Memory{} // unknown
	case err != nil:
		l.memory.Memory, l.failure = Memory{}, err
	default:
		was := l.memory.isHigh()
		l.memory.Memory = now
		l.fitMemory(was)
	}
}

// beginReading reports whether the caller should read the memory.
func (l *Adaptive) beginReading() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &l.memory
	if r.busy || !r.at.IsZero() && time.Since(r.at) < memoryInterval {
		return false
	}
	r.busy, r.at = true, time.Now()
	return true
}

// fitMemory shrinks the limit while too much memory is in use: to as many handlers as would fit if all of it were theirs, by a
// tenth when that begins, and below those that run, so that none starts for one that ends until the memory is less. Was
// says whether it was too much before. Requires mu.
func (l *Adaptive) fitMemory(was bool) {
	if !l.memory.isHigh() {
		return
	}
	l.memory.high = time.Now()
	l.rule.starting = false
	running := float64(l.running)
	fit := min(running*highMemory/l.memory.part(), running-1)
	if !was {
		fit = min(fit, running*backOff)
	}
	if fit < l.rule.exact {
		l.set(fit, change{why: afterMemory, memory: l.memory.Memory})
	}
}

// ContainerMemory reads the memory that this process may use, for the option Memory: the limit of its control group, of
// version 2 or 1, and of the groups around that, whichever is nearest to being reached; what is in use there without the cached
// files that the kernel would drop first, as the kubelet counts it. Without such a limit it is that of the Go runtime
// (GOMEMLIMIT, debug.SetMemoryLimit) and what the runtime uses. Without any Limit is 0. It takes about 0.1 ms. It is safe for
// concurrent use.
//
// Garbage counts until it is collected. With a limit of a container set GOMEMLIMIT to 0.7 of it, so that the runtime
// collects its garbage before that counts.
func ContainerMemory() (Memory, error) {
	m, err := resources.Container()
	return Memory(m), err
}

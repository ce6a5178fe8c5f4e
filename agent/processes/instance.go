package processes

import (
	"os"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/retry"
)

type phase int

const (
	working  phase = iota // it has a process
	waiting               // it has none, and gets one at the time that is due
	draining              // its process was told to end, or is about to be
	gone                  // it has ended for good, and some of its output has still to be read
)

// instance is one instance. It is used by the keeper alone.
type instance struct {
	number  int
	phase   phase
	process *process // nil if it has none
	output  *output  // nil until it is started
	started time.Time
	due     time.Time    // of the next start or the next step of draining
	waits   *retry.Waits // before starts
	told    bool         // that it should end
	killed  bool
	warned  bool // that its process id is unknown
}

func newInstance(number int, t timing) *instance {
	return &instance{number: number, phase: waiting, waits: retry.NewWaits("instance "+strconv.Itoa(number), t.restart, t.maxRestart)}
}

// live reports whether the instance is one of those that are wanted.
func (i *instance) live() bool { return i.phase == working || i.phase == waiting }

// endsBefore orders surplus instances: first those that have no process, then the youngest, which have done the least: they may not
// even have begun.
func endsBefore(a, b *instance) int {
	switch {
	case a.phase != b.phase:
		return int(b.phase) - int(a.phase) // waiting before working
	case !a.started.Equal(b.started):
		return b.started.Compare(a.started)
	default:
		return b.number - a.number
	}
}

func (i *instance) closeFiles() {
	if i.process != nil {
		i.process.close()
	}
	if i.output != nil {
		_ = i.output.file.Close() // it was only read
	}
}

// startedAt is when the process of a former agent was started.
func startedAt(root *os.Root, number int) time.Time {
	info, err := root.Stat(lockName(number))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

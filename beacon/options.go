package beacon

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
)

// The bounds of [Options.Interval], and of Next of a [Report].
const (
	MinInterval     = 100 * time.Millisecond
	MaxInterval     = time.Hour
	defaultInterval = 10 * time.Second
)

// maxName is how long the name of an instance may be, in bytes.
const maxName = 200

// Options say where an instance reports and how often. The zero value reports nowhere. It may be copied.
type Options struct {
	// Queue is the control queue. It must be a queue of its own, from which nobody takes messages. Defaults to none: the
	// instance is not seen.
	Queue queue.Queue

	// Create creates the control queue when it is missing. Defaults to false: reports fail until there is one.
	Create bool

	// Interval is how long lies between reports while something changes, at least 100 ms and at most 1 h. Each is one
	// request. While nothing changes the next ones follow after twice as long each, up to six times Interval.
	// Defaults to 10 s.
	Interval time.Duration

	// Instance identifies the instance among all that report, in at most 200 bytes. All listeners of one process should
	// have the same. Those on the same queue must have different ones: they hide each other otherwise.
	// Defaults to the host's name, the process id and a random number.
	Instance string
}

// Enabled reports whether there is a control queue.
func (o Options) Enabled() bool { return o.Queue != nil }

// Check returns everything that is wrong with the options of a listener that takes jobs from this queue, or nil.
func (o Options) Check(jobs queue.Name) error {
	if !o.Enabled() {
		return nil
	}
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if hook.IsNil(o.Queue) {
		refuse("the control queue is a nil %T: leave it out to report nowhere", o.Queue)
	} else if o.Queue.Name() == jobs {
		refuse("the control queue is the queue of the jobs, %v: reports need a queue of their own", jobs)
	}
	if o.Interval != 0 && (o.Interval < MinInterval || o.Interval > MaxInterval) {
		refuse("the interval %v is outside %v…%v: give it a unit, such as 10*time.Second", o.Interval, MinInterval, MaxInterval)
	}
	if err := checkInstance(o.Instance); o.Instance != "" && err != nil {
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("beacon: %w", errors.Join(errs...))
}

func checkInstance(name string) error {
	switch {
	case name == "":
		return errors.New("the instance has no name")
	case len(name) > maxName:
		return fmt.Errorf("the name of the instance has %d bytes, at most %d are allowed", len(name), maxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("the name of the instance, %q, is not valid UTF-8", name)
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	if o.Instance == "" {
		o.Instance = thisProcess()
	}
	return o
}

// thisProcess returns the default name of the instance, which is the same for all listeners of the process.
var thisProcess = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil || !utf8.ValidString(host) {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d-%08x", host[:min(len(host), maxName/2)], os.Getpid(), rand.Uint32())
})

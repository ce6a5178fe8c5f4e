package adaptive

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/dispatcher"
)

// defaultStart is how many handlers may run at once before anything is known.
const defaultStart = 16

// Options configure a [Limit]. Nil and the zero value mean the defaults.
type Options struct {
	// Min is the lowest the limit gets. Defaults to 1.
	Min int

	// Max is the highest the limit gets. Defaults to 64.
	Max int

	// Start is what the limit is at first. Defaults to 16, or with Memory to Min, within Min…Max.
	Start int

	// Exhausted reports whether an error of a handler says that the dependency is exhausted, for errors that
	// do not match ErrExhausted, such as those of a client library. It is called concurrently, for errors only. Defaults to
	// none.
	Exhausted func(error) bool

	// Gradient makes the limit also follow how long handlers take: it shrinks when the same kind of job takes longer than
	// 1.5 times what it takes at half the limit. It is for dependencies that become slow and do not refuse, with jobs
	// of one kind whose durations differ by less than that from hour to hour. Defaults to false: only errors and
	// time-outs count.
	Gradient bool

	// Memory reads how much memory is in use: the limit shrinks while more than 0.8 of it is, and grows only if that
	// was not so for a minute. It is called when handlers begin and end, at most once in 100 ms, one call at a time.
	// [ContainerMemory] reads that of the container. Defaults to none.
	Memory func() (Memory, error)
}

// withDefaults returns the options with their defaults, or all errors in them.
func (o Options) withDefaults() (Options, error) {
	if o.Min == 0 {
		o.Min = 1
	}
	if o.Max == 0 {
		o.Max = max(dispatcher.DefaultConcurrency, o.Min)
	}
	if o.Start == 0 {
		o.Start = min(max(defaultStart, o.Min), o.Max)
		if o.Memory != nil {
			o.Start = o.Min
		}
	}
	var errs []error
	if o.Min < 0 || o.Max < o.Min {
		errs = append(errs, fmt.Errorf("adaptive limit: bounds %d…%d must be at least 1, and Max not below Min", o.Min, o.Max))
	} else if o.Start < o.Min || o.Start > o.Max {
		errs = append(errs, fmt.Errorf("adaptive limit: Start %d is outside %d…%d", o.Start, o.Min, o.Max))
	}
	return o, errors.Join(errs...)
}

package perkey

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
)

// Defaults of [Options].
const (
	defaultWait     = 5 * time.Second // less than half of the shortest visibility that a listener chooses
	defaultMaxDelay = 10 * time.Minute
)

// Options configure [Keys]. Nil and the zero value mean the defaults.
type Options struct {
	// Wait is how long a job waits in its slot for its key. Negative means not at all: a job whose key is
	// taken is postponed at once. Less than 1 µs is refused as a number without a unit. Defaults
	// to 5 s, in which no lease of a default visibility needs to be renewed.
	Wait time.Duration

	// MaxDelay is for how long a job is postponed at most, 1 s … 7 days. Lower it if keys become
	// free in ways that this process does not see, because that is how long their jobs may stay hidden;
	// a flood of n jobs then costs up to n updates in that time. Defaults to 10 min.
	MaxDelay time.Duration
}

func (o *Options) setDefaults() error {
	var errs []error
	if o.Wait > 0 && o.Wait < time.Microsecond {
		errs = append(errs, fmt.Errorf("the option Wait %v is too short: give it a unit, such as 5*time.Second", o.Wait))
	}
	if o.MaxDelay != 0 && (o.MaxDelay < time.Second || o.MaxDelay > queue.MaxVisibility) {
		errs = append(errs, fmt.Errorf("the option MaxDelay %v is outside 1s…%v", o.MaxDelay, queue.MaxVisibility))
	}
	if o.Wait == 0 {
		o.Wait = defaultWait
	}
	if o.MaxDelay == 0 {
		o.MaxDelay = defaultMaxDelay
	}
	return errors.Join(errs...)
}

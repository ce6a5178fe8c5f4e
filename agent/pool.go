package agent

import (
	"context"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

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

	// Queues are where the instances take jobs from. Figures are sums. At least one.
	Queues []queue.Queue

	// Beacons are the control queues in which the instances report, see package beacon. Pools may share them. Defaults to none:
	// figures that only instances know are unknown, and the policy's own are used.
	Beacons []queue.Queue

	// Policy decides. Defaults to that of its zero value.
	Policy scaling.Policy

	// Actuator makes it so. Defaults to none: a dry run, which only decides.
	Actuator Actuator
}

package scaling

import "time"

// Policy decides how many instances a pool should have. The zero value is the default. It may be copied; its methods are pure
// and safe for concurrent use.
type Policy struct {
	// Min is how many instances there are at least. Defaults to 1, or with ToZero to none.
	Min int

	// ToZero lets the last instance go too. Something must start one when work comes: the agent, which then reads the depth.
	// Defaults to false.
	ToZero bool

	// Max is how many instances there are at most. Defaults to 20, or to Min if that is more.
	Max int

	// Target is in what time a backlog should be gone. Defaults to 1 min.
	Target time.Duration

	// Utilization is how much of the slots the lasting load may use; the rest is for sudden growth. Defaults to 0.8.
	Utilization float64

	// Spare is how many instances there are beside what the load calls for. Defaults to none.
	Spare int

	// Start is how long an instance takes from being asked for to its first job. Defaults to 30 s.
	Start time.Duration

	// DownAfter is how long fewer instances must have been enough before some are removed. Defaults to 10 min.
	DownAfter time.Duration

	// Slots is how many handlers one instance runs at once, while no instance says so. Defaults to 64.
	Slots int

	// Handling is how long a message occupies a slot, while no instance says so. Defaults to 1 s.
	Handling time.Duration

	// Forecast makes the policy look at the same time a day and a week ago, while that was a better forecast than the
	// latest figures. Defaults to false.
	Forecast bool
}

// Decision is what a [Policy] decided.
type Decision struct {
	// At is the time of the newest sample.
	At time.Time `json:"at"`

	// From is how many instances there were, and Instances how many there should be.
	From      int `json:"from"`
	Instances int `json:"instances"`

	// Wanted is how many the load alone calls for, regardless of bounds, steps and windows.
	Wanted int `json:"wanted"`

	// Why is the decision in a sentence, with its numbers.
	Why string `json:"why"`
}

// Decide returns how many instances there should be now.
func (p Policy) Decide(h History) Decision { panic("not written yet") }

// Check returns what is wrong with the policy, or nil.
func (p Policy) Check() error { panic("not written yet") }

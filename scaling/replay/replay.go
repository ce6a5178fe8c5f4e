package replay

import (
	"time"

	"github.com/millrace/millrace/scaling"
)

// Trace is a load over time.
type Trace struct {
	Name     string
	Step     time.Duration // how long each of Arrivals lasts
	Arrivals []float64     // messages that come in each step
	Poison   []float64     // how many of these fail at every attempt; nil means none
	Handling time.Duration // how long a message occupies a slot
	Slots    int           // handlers that one instance runs at once
	Start    time.Duration // from asking for an instance to its first job
	SLA      time.Duration // from arrival to the end of a job
	Max      int           // most instances that a rule may ask for
	Accounts []string      // storage accounts that the load is spread over; one if it is empty
}

// Rule decides how many instances there should be. The simulator calls it once in Interval.
type Rule interface {
	// Name is how tables call it.
	Name() string

	// Interval is how long lies between decisions.
	Interval() time.Duration

	// Decide returns how many instances there should be, and why if it says so.
	Decide(h scaling.History) scaling.Decision
}

// Result is what came of a trace under a rule.
type Result struct {
	Trace, Rule   string
	Jobs          float64       // that came
	Late          float64       // of them, ended after the SLA, or never
	InstanceHours float64       // paid for, from being asked for to the end
	Changes       int           // of the number of instances
	Reversals     int           // changes in the other direction than the one before
	Requests      float64       // to the queues, by instances and by who measures
	Worst         time.Duration // longest time from arrival to end
	Timeline      []Point
}

// Point is one moment of a replay.
type Point struct {
	At               time.Duration
	Arrival, Service float64 // messages a second
	Waiting          float64
	Instances, Ready int
	Why              string
}

// Run plays a trace against a rule.
func Run(t Trace, r Rule) Result { panic("not written yet") }

package agent

import (
	"slices"
	"time"

	"github.com/millrace/millrace/meter"
	"github.com/millrace/millrace/scaling"
)

// Decided is one decision about one pool.
type Decided struct {
	Pool     string           `json:"pool"`
	Sample   scaling.Sample   `json:"sample"` // the newest one that it was made from
	Decision scaling.Decision `json:"decision"`
	DryRun   bool             `json:"dry_run"` // nothing was changed
	Err      error            `json:"error"`   // why it could not be carried out; nil if it was, or nothing was to be done
}

// Changes reports whether the decision changes the number of instances.
func (d Decided) Changes() bool { return d.Decision.Instances != d.Decision.From }

// PoolState describes one pool.
type PoolState struct {
	Pool   string `json:"pool"`
	DryRun bool   `json:"dry_run"`

	// Sample is the newest sample. Before the first measurement its At is zero.
	Sample scaling.Sample `json:"sample"`

	// Last is the newest decision, nil before the first. It is older than Sample while the number of instances cannot be read.
	Last *Decided `json:"last"`

	// Errors are those of the newest measurement and decision, in order. Each is an *[Error].
	Errors []*Error `json:"errors"`

	// Summary is what the decisions came to.
	Summary Summary `json:"summary"`
}

// timelineLength is how many decisions are kept: three hours at 10 s.
const timelineLength = 1080

// record is what is published of a pool.
type record struct {
	state    PoolState
	timeline []Decided
}

// State returns what is known of each pool, in the order in which they were passed to [New]. It sends nothing.
func (a *Agent) State() []PoolState {
	states := make([]PoolState, 0, len(a.pools))
	for _, p := range a.pools {
		states = append(states, p.state())
	}
	return states
}

// Timeline returns the newest decisions about a pool, oldest first: one for each measurement, 1,080 at most. It is nil
// for a pool that does not exist. It sends nothing.
func (a *Agent) Timeline(pool string) []Decided {
	for _, p := range a.pools {
		if p.Name == pool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return slices.Clone(p.public.timeline)
		}
	}
	return nil
}

func (p *pool) state() PoolState {
	requests := p.meter.Counts()
	cost, known := requests.Cost(p.agent.options.Prices.Requests)
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.public.state
	s.Pool, s.DryRun, s.Errors = p.Name, p.dry(), slices.Clone(s.Errors)
	s.Summary.Requests = requests
	if known {
		s.Summary.RequestCost = scaling.Known(cost)
	}
	if price := p.agent.options.Prices.InstanceHour; price > 0 {
		s.Summary.InstanceCost = scaling.Known(price * s.Summary.InstanceHours)
	}
	return s
}

// publish makes a round known to State and Timeline. Without a number of instances there is no decision, and perhaps no sample.
func (p *pool) publish(s scaling.Sample, d *Decided, errs []*Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &p.public
	r.state.Errors = errs
	if s.At.IsZero() {
		return
	}
	r.state.Summary.measured(r.state.Last, s, p.Policy)
	r.state.Sample = s
	if d == nil {
		return
	}
	r.state.Last = d
	r.state.Summary.decided(d)
	if len(r.timeline) == timelineLength {
		r.timeline = slices.Delete(r.timeline, 0, 1)
	}
	r.timeline = append(r.timeline, *d)
}

// measured counts the time up to a sample, in which the instances were those of the decision before.
func (s *Summary) measured(last *Decided, now scaling.Sample, p scaling.Policy) {
	if s.From.IsZero() {
		s.From = now.At
		s.To = now.At
		return
	}
	passed := now.At.Sub(s.To)
	s.To = now.At
	if last != nil {
		n := last.Decision.Instances
		if last.Err != nil {
			n = last.Decision.From
		}
		s.InstanceHours += passed.Hours() * float64(n)
	}
	age, known := now.HeadAge.Get()
	switch {
	case !known:
		s.UnseenMinutes += passed.Minutes()
	case age > p.WithDefaults().Target:
		s.LateMinutes += passed.Minutes()
	}
}

func (s *Summary) decided(d *Decided) {
	n := d.Decision.Instances
	switch {
	case d.Err != nil:
		s.Failed++
		n = d.Decision.From
	case n > d.Decision.From:
		s.Ups++
	case n < d.Decision.From:
		s.Downs++
	}
	if s.Decisions == 0 {
		s.Least, s.Most = d.Decision.From, d.Decision.From
	}
	s.Decisions++
	s.Least, s.Most = min(s.Least, n), max(s.Most, n)
}

// Summary is what the decisions about one pool came to, since Run was called. In a dry run it is what they would have come to.
type Summary struct {
	// From and To are the times of the first and of the newest measurement.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`

	// Decisions is how many were made, Ups and Downs how many of them changed the number of instances, and Failed how many could not be carried out.
	Decisions int `json:"decisions"`
	Ups       int `json:"ups"`
	Downs     int `json:"downs"`
	Failed    int `json:"failed"`

	// Least and Most are the bounds of the number of instances.
	Least int `json:"least"`
	Most  int `json:"most"`

	// InstanceHours are those of the instances that were there, or would have been; of stopping ones nothing is known.
	InstanceHours float64 `json:"instance_hours"`

	// Requests are those that measuring sent.
	Requests meter.Counts `json:"requests"`

	// InstanceCost and RequestCost are what these cost, unknown without prices.
	InstanceCost scaling.Optional[float64] `json:"instance_cost"`
	RequestCost  scaling.Optional[float64] `json:"request_cost"`

	// LateMinutes is for how long the oldest message had waited longer than the policy's Target, and UnseenMinutes for how long that
	// could not be told. In a dry run it is what the real instances made of it.
	LateMinutes   float64 `json:"late_minutes"`
	UnseenMinutes float64 `json:"unseen_minutes"`
}

// Changes returns how many decisions changed the number of instances.
func (s Summary) Changes() int { return s.Ups + s.Downs }

package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/metered"
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
	Requests metered.Counts `json:"requests"`

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

// Error is something that failed for one pool. The agent goes on, and tries again at the next measurement.
type Error struct {
	// Pool is the name of the pool.
	Pool string

	// Doing is what was attempted, such as "read the depth".
	Doing string

	// Queue is where; the zero value if it concerns no queue.
	Queue queue.Name

	// Consequence is what follows from it, such as that a figure is unknown.
	Consequence string

	// Hint is what to do about it; "" if there is nothing to say.
	Hint string

	// Err is why.
	Err error

	kind string // of failures that are one in the log; defaults to Doing
	once bool   // it does not last until it works again
}

// Error returns all of it in one sentence.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pool %s: %s", e.Pool, e.Doing)
	if e.Queue != (queue.Name{}) {
		fmt.Fprintf(&b, " of %v", e.Queue)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	for _, more := range []string{e.Consequence, e.Hint} {
		if more != "" {
			b.WriteString("; " + more)
		}
	}
	return b.String()
}

// Unwrap returns why.
func (e *Error) Unwrap() error { return e.Err }

// MarshalText returns the sentence, for JSON.
func (e *Error) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// What the agent does, for [Error.Doing].
const (
	readingDepth     = "read the depth"
	peeking          = "look at the oldest message"
	readingReports   = "read the reports"
	seeingReports    = "see all reports"
	readingInstances = "read how many instances there are"
	subscribing      = "subscribe to wake-ups"
	readingHistory   = "read the history"
	keepingHistory   = "keep the history"
	counting         = "count the instances"
	changing         = "scale"
)

// occasional is what is not attempted at each measurement: that it has not failed does not mean
// that it works again.
var occasional = []string{changing, keepingHistory, subscribing, counting, seeingReports}

// queueHint says what to do about an error of a queue.
func queueHint(err error, right string) string {
	switch {
	case errors.Is(err, queue.ErrQueueMissing):
		return "create the queue, or take it out of the pool"
	case errors.Is(err, queue.ErrQueueBeingDeleted):
		return "it can be created again in about 30 s"
	case errors.Is(err, queue.ErrUnauthorized):
		return "give the agent the right to " + right
	case errors.Is(err, errHangs):
		return "the queue ignores contexts; restart the agent if this lasts"
	}
	return ""
}

// PanicError is a panic in a queue, an actuator or a source of wake-ups.
type PanicError struct {
	Value any    // passed to panic
	Stack string // the stack of the goroutine
}

// Error returns the value, and not the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("it panicked: %v", e.Value) }

func panicked(f *hook.Failure) error { return &PanicError{Value: f.Value, Stack: string(f.Stack)} }

// logInterval is how long after a line in the log the same failure is not logged again.
const logInterval = 10 * time.Minute

// failing identifies what fails, so that the log has one line for it and not one for each measurement.
type failing struct {
	doing string
	queue queue.Name
}

// compare orders failures, so that a log is the same in each run.
func (f failing) compare(g failing) int {
	return cmp.Or(cmp.Compare(f.queue.String(), g.queue.String()), cmp.Compare(f.doing, g.doing))
}

// outage is a failure that lasts.
type outage struct {
	since, logged time.Time
	times         int
}

// outages are the failures of one pool that last. Only the goroutine of the pool uses it.
type outages struct {
	logger *slog.Logger
	now    map[failing]*outage
	tried  map[string]bool // what of the occasional was attempted since the last round
}

// round logs what began, what lasts and what has ended, given all errors of one measurement.
func (o *outages) round(ctx context.Context, errs []*Error) {
	at := time.Now()
	seen := map[failing]bool{}
	for _, e := range errs {
		if e.once {
			o.logger.ErrorContext(ctx, e.Error(), stack(e)...)
			continue
		}
		f := failing{cmp.Or(e.kind, e.Doing), e.Queue}
		seen[f] = true
		last := o.now[f]
		if last == nil {
			last = &outage{since: at}
			o.now[f] = last
		}
		last.times++
		if last.logged.IsZero() || at.Sub(last.logged) >= logInterval {
			last.logged = at
			o.logger.ErrorContext(ctx, e.Error(), append([]any{"times", last.times}, stack(e)...)...)
		}
	}
	for _, f := range slices.SortedFunc(maps.Keys(o.now), failing.compare) {
		if last := o.now[f]; !seen[f] && (o.tried[f.doing] || !slices.Contains(occasional, f.doing)) {
			delete(o.now, f)
			o.logger.InfoContext(ctx, "it works again: "+f.doing, "queue", f.queue.String(), "failed", last.times, "for", at.Sub(last.since).Round(time.Second))
		}
	}
	clear(o.tried)
}

// stack returns the stack of a panic, for the log.
func stack(err error) []any {
	var p *PanicError
	if errors.As(err, &p) {
		return []any{"stack", p.Stack}
	}
	return nil
}

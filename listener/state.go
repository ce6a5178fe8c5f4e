package listener

import (
	"fmt"
	"maps"
	"time"

	"github.com/millrace/millrace/queue/metered"
)

// Phase is the phase of a listener's life. The zero value is [Waiting].
type Phase string

// The phases.
const (
	Waiting  Phase = ""         // Run has not been called
	Running  Phase = "running"  // messages are dequeued
	Draining Phase = "draining" // nothing is dequeued any more, handlers finish
	Stopped  Phase = "stopped"  // Run has returned
)

// State describes the work of a listener. The counts are of this listener since its start. The maps
// are the caller's, and later changes do not show in them: a missing key means 0. Its JSON form has
// the names in lower case, with underscores, and no errors.
type State struct {
	// Load is the load of this listener. Depth is the last depth that was read, at DepthAt. The rates
	// stay when the listener has stopped.
	Load

	Phase Phase `json:"phase"`

	PausedBy    PausedBy  `json:"paused_by"`    // who has stopped the fetching; else NotPaused
	PausedSince time.Time `json:"paused_since"` // when; zero if it is not paused

	LastPoll    time.Time `json:"last_poll"`     // when a dequeue last succeeded; zero before that; with Options.Wakeups it may be long ago
	PollError   error     `json:"-"`             // why the last dequeue failed; nil if it succeeded
	LastError   error     `json:"-"`             // the last error of any kind; may be nil
	LastErrorAt time.Time `json:"last_error_at"` // when it occurred

	DepthAt time.Time `json:"depth_at"` // when Depth was read; zero if it never was

	Listening bool `json:"listening"` // events of Options.Wakeups reach the listener: loops end when the queue is empty

	LoopsPeak    int `json:"loops_peak"`    // highest number of loops so far
	LoopsStarted int `json:"loops_started"` // loops started in total

	Delayed int64           `json:"delayed"`           // messages given back that are not due yet, and poison kept hidden; up to a sixteenth of the delay too long
	Failing []FailingSource `json:"failing,omitempty"` // what keeps failing and therefore gets few slots, the oldest first

	Requests   int64 `json:"requests"`    // all requests, each of them a billed transaction unless the service was busy
	Polls      int64 `json:"polls"`       // successful dequeues
	EmptyPolls int64 `json:"empty_polls"` // successful dequeues without messages
	Limited    int64 `json:"limited"`     // dequeues that a limit of the program held back: nothing was sent
	Received   int64 `json:"received"`    // messages dequeued
	Renewed    int64 `json:"renewed"`     // leases renewed
	Errors     int64 `json:"errors"`      // errors of any kind
	Late       int64 `json:"late"`        // settlements that failed because the visibility had passed

	// Outcomes has how many deliveries ended with each outcome. [Deleted] counts the jobs that were
	// handled with success.
	Outcomes map[Outcome]int64 `json:"outcomes,omitempty"`

	Visibility time.Duration `json:"visibility"` // visibility of the next dequeue; in nanoseconds in JSON

	// ByCause has the requests by cause. The keys are the causes of package metered: "fetch", "renew",
	// "save", "start", "giveback", "delete", "poison" (two for a move), "depth", "metadata",
	// "create", "beacon", and others for requests of the program's own Queue.
	ByCause map[string]int64 `json:"by_cause,omitempty"`

	// ByFailure has the requests that failed: "throttled" (the service was busy, and bills nothing),
	// "unreached" (no answer, or no token), and "failed" (any other error, except that the poison
	// queue does not exist yet). "repeated" has the requests that were sent again.
	ByFailure map[string]int64 `json:"by_failure,omitempty"`
}

// Ready reports whether the listener runs and its last dequeue succeeded. A missing queue is not
// ready. A pause changes nothing, and a listener that starts paused is ready, although it has not
// polled; nor do jobs that fail: a restart would help none of them. Use it for a readiness probe, with
// [State.Reasons] as the text of its answer.
func (s State) Ready() bool {
	return s.Phase == Running && (!s.LastPoll.IsZero() || s.PausedBy != NotPaused) && s.PollError == nil
}

// Reasons returns in sentences why the listener is not ready, or why jobs wait although it is: it is
// paused, or limits what keeps failing. It is empty if there is no such reason.
func (s State) Reasons() (all []string) {
	switch {
	case s.Phase == Waiting:
		all = append(all, "Run has not been called")
	case s.Phase != Running:
		all = append(all, "its phase is "+string(s.Phase))
	case s.PollError != nil:
		all = append(all, "the last dequeue failed: "+s.PollError.Error())
	case s.PausedBy == NotPaused && s.LastPoll.IsZero():
		all = append(all, "no dequeue has succeeded yet")
	}
	if s.PausedBy != NotPaused {
		all = append(all, fmt.Sprintf("it is paused by the %v since %s", s.PausedBy, s.PausedSince.UTC().Format(time.RFC3339)))
	}
	for _, one := range s.Failing {
		all = append(all, one.String())
	}
	return all
}

// Healthy reports whether Run has not returned. It stays true in an outage of the service,
// because restarting the worker would not help. Use it for a liveness probe.
func (s State) Healthy() bool { return s.Phase != Stopped }

// State returns the state of the listener. It sends no request: Depth is the last one read. Before
// Run only PausedBy and PausedSince can be set.
func (l *Listener[T]) State() (st State) {
	l.mu.Lock()
	s := l.session
	if s == nil && l.startsPaused {
		st.PausedBy, st.PausedSince = ByProgram, l.pausedSince
	}
	l.mu.Unlock()
	if s != nil {
		return s.state()
	}
	return st
}

// state implements [Listener.State].
func (s *session) state() State {
	counts, now := s.meter.Counts(), s.snapshot()
	st := State{
		Load: s.load(now.depth), Phase: now.phase, PausedBy: now.pauses.by(),
		LastPoll: s.timeOf(now.lastPoll), PollError: now.pollError, DepthAt: s.timeOf(now.depthAt),
		Listening: now.listening, LoopsPeak: now.peak, LoopsStarted: now.started,
		Delayed: s.dispatcher.Delayed(), Failing: s.dispatcher.Failing(),
		Requests: counts.Total().Requests, ByCause: byCause(counts), ByFailure: byFailure(counts.Total()),
		Polls: now.polls, EmptyPolls: now.emptyPolls, Limited: now.limited, Received: now.received,
		Renewed: s.dispatcher.Renewed(), Errors: s.report.errors.Load(), Late: s.dispatcher.Late(),
		Outcomes: s.dispatcher.Outcomes(), Visibility: s.dispatcher.Visibility(),
	}
	st.Loops = now.active // with the others of the snapshot
	if now.pauses != 0 {
		st.PausedSince = s.timeOf(now.pausedAt)
	}
	st.LastErrorAt, st.LastError = s.report.lastError()
	return st
}

func byCause(c metered.Counts) map[string]int64 {
	requests := map[string]int64{}
	for _, line := range c {
		requests[line.Cause.String()] += line.Requests
	}
	return requests
}

func byFailure(total metered.Tally) map[string]int64 {
	requests := map[string]int64{
		"throttled": total.Throttled, "unreached": total.Unreached, "failed": total.Failed, "repeated": total.Repeated,
	}
	maps.DeleteFunc(requests, func(_ string, n int64) bool { return n == 0 })
	return requests
}

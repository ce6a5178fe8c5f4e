package listener

import (
	"fmt"
	"maps"
	"time"

	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/scaling"
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

// State describes the work of a listener. The counts are of this listener since its start.
type State struct {
	Phase Phase

	PausedBy    PausedBy  // who has stopped the fetching; else NotPaused
	PausedSince time.Time // when; zero if it is not paused

	LastPoll    time.Time // when a dequeue last succeeded; zero before that; with Options.Wakeups it may be long ago
	PollError   error     `json:"-"` // why the last dequeue failed; nil if it succeeded
	LastError   error     `json:"-"` // the last error of any kind; may be nil
	LastErrorAt time.Time // when it occurred

	Depth   int64     // last depth that was read: approximate, includes invisible messages; see DepthAt
	DepthAt time.Time // when it was read; zero if it never was

	Listening bool // events of Options.Wakeups reach the listener: loops end when the queue is empty

	Loops        int // dequeue loops now running
	LoopsPeak    int // highest number of loops so far
	LoopsStarted int // loops started in total

	Running  int   // handlers now running
	Settling int   // settlements in progress
	Slots    int   // how many handlers may run at the same time; with shared slots, how many there are for all
	Delayed  int64 // messages given back that are not due yet, and poison kept hidden; up to a sixteenth of the delay too long

	Failing []FailingSource `json:",omitempty"` // what keeps failing and therefore gets few slots, the oldest first

	// The rates are of the last 30 s, or since the start if that is less, and unknown in the first
	// second. They stay when the listener has stopped.
	Arrival  scaling.Optional[float64]       // messages a second that come to the queue; see scaling.Load
	Intake   scaling.Optional[float64]       // messages a second received
	Service  scaling.Optional[float64]       // messages a second taken off the queue: deleted or moved to the poison queue
	Handling scaling.Optional[time.Duration] // how long a handler took on average; the last known mean if no handler has returned since

	Requests   int64 // all requests, each of them a billed transaction unless the service was busy
	Polls      int64 // successful dequeues
	EmptyPolls int64 // successful dequeues without messages
	Limited    int64 // dequeues that a limit of the program held back: nothing was sent
	Received   int64 // messages dequeued
	Renewed    int64 // leases renewed
	Errors     int64 // errors of any kind

	Succeeded  int64 // handled and deleted
	Retried    int64 // failed and given back with a delay
	Discarded  int64 // deleted unhandled: the handler asked for it
	Poisoned   int64 // moved to the poison queue
	Kept       int64 // poison kept hidden in its queue
	Snoozed    int64 // given back with a delay, without recording an attempt
	Returned   int64 // given back unhandled, when stopping
	Lost       int64 // deliveries that lost their lease
	Unsettled  int64 // deliveries that could not be settled
	Duplicates int64 // deleted unhandled: the job was handled before
	Late       int64 // settlements that failed because the visibility had passed

	Visibility time.Duration // visibility of the next dequeue

	// ByCause has the requests by cause. The keys are the causes of package metered: "fetch", "renew",
	// "save", "start", "giveback", "delete", "poison" (two for a move), "depth", "metadata",
	// "create", "beacon", and others for requests of the program's own Queue.
	ByCause map[string]int64 `json:",omitempty"`

	// ByFailure has the requests that failed: "throttled" (the service was busy, and bills nothing),
	// "unreached" (no answer, or no token), and "failed" (any other error, except that the poison
	// queue does not exist yet). "repeated" has the requests that were sent again.
	ByFailure map[string]int64 `json:",omitempty"`
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
	counts, outcomes := s.meter.Counts(), s.dispatcher.Outcomes()
	now, rates := s.snapshot(), s.rates.current()
	st := State{
		Phase: now.phase, PausedBy: now.pauses.by(),
		LastPoll: s.timeOf(now.lastPoll), PollError: now.pollError, Depth: now.depth, DepthAt: s.timeOf(now.depthAt),
		Listening: now.listening, Loops: now.active, LoopsPeak: now.peak, LoopsStarted: now.started,
		Slots: s.dispatcher.Capacity(), Delayed: s.dispatcher.Delayed(), Failing: s.dispatcher.Failing(),
		Arrival: rates.arrival, Intake: rates.intake, Service: rates.service, Handling: rates.handling,
		Requests: counts.Total().Requests, ByCause: byCause(counts), ByFailure: byFailure(counts.Total()), Polls: now.polls, EmptyPolls: now.emptyPolls, Limited: now.limited, Received: now.received,
		Renewed: s.dispatcher.Renewed(), Errors: s.report.errors.Load(),
		Succeeded: outcomes[Deleted], Retried: outcomes[Retried],
		Discarded: outcomes[Discarded], Poisoned: outcomes[Poisoned],
		Kept: outcomes[Kept], Snoozed: outcomes[Snoozed], Returned: outcomes[Returned],
		Lost: outcomes[Lost], Unsettled: outcomes[Unsettled], Duplicates: outcomes[Duplicate], Late: s.dispatcher.Late(),
		Visibility: s.dispatcher.Visibility(),
	}
	if now.pauses != 0 {
		st.PausedSince = s.timeOf(now.pausedAt)
	}
	st.LastErrorAt, st.LastError = s.report.lastError()
	st.Running, st.Settling = s.dispatcher.Running()
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

package listener

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/dispatcher"
)

// Phase is how far a listener has come in its life. The zero value is [Waiting].
type Phase int

// The phases.
const (
	Waiting  Phase = iota // Run was not called yet
	Running               // jobs are taken
	Draining              // no job is taken any more, handlers finish
	Stopped               // Run has returned
)

var phaseNames = []string{"waiting", "running", "draining", "stopped"}

// String names the phase.
func (p Phase) String() string {
	if p < 0 || int(p) >= len(phaseNames) {
		return fmt.Sprintf("Phase(%d)", int(p))
	}
	return phaseNames[p]
}

// MarshalText names the phase, for JSON and logs. An unknown one is an error.
func (p Phase) MarshalText() ([]byte, error) {
	if p < 0 || int(p) >= len(phaseNames) {
		return nil, fmt.Errorf("listener: there is no %v", p)
	}
	return []byte(p.String()), nil
}

// UnmarshalText reads what [Phase.MarshalText] writes.
func (p *Phase) UnmarshalText(text []byte) error {
	for i, name := range phaseNames {
		if name == string(text) {
			*p = Phase(i)
			return nil
		}
	}
	return fmt.Errorf("listener: %q is no phase", text)
}

// State is what a listener is doing: the source's QueryState (L-02) grown up. The
// counts are of this listener since its start.
type State struct {
	Phase Phase

	LastPoll    time.Time // when a dequeue was answered last; zero when none ever was
	PollError   error     `json:"-"` // why the last dequeue was not answered; nil when it was
	LastError   error     `json:"-"` // the last error of any kind; nil when there was none
	LastErrorAt time.Time // when it was

	Depth   int64     // the depth last read: approximate, invisible messages included; see DepthAt
	DepthAt time.Time // when it was read; zero when it never was

	Loops        int // dequeue loops that run now
	LoopsPeak    int // most loops at once
	LoopsStarted int // all loops ever started

	Running  int // handlers that run now
	Settling int // settlements under way

	Requests   int64 // all requests, each of them a billed transaction
	Polls      int64 // dequeues that were answered
	EmptyPolls int64 // those of them that found nothing
	Received   int64 // messages dequeued
	Renewed    int64 // leases renewed
	Errors     int64 // errors of any kind

	Succeeded int64 // handled and deleted
	Retried   int64 // failed and given back with a delay
	Discarded int64 // deleted unhandled, because the handler said so
	Poisoned  int64 // moved to the poison queue
	Kept      int64 // poison that stays hidden in its queue
	Snoozed   int64 // given back for later, no attempt recorded
	GivenBack int64 // given back unhandled, when stopping
	Lost      int64 // deliveries whose lease was lost
	Unsettled int64 // deliveries that the service would not let us settle
	Late      int64 // settlements that failed because the visibility had ended (V-05)

	Visibility time.Duration // what the next dequeue will ask for
}

// Ready tells whether jobs are taken: the listener runs, and the service answered the last
// dequeue. A queue that is missing is not ready. It is what a readiness probe asks.
func (s State) Ready() bool {
	return s.Phase == Running && !s.LastPoll.IsZero() && s.PollError == nil
}

// Healthy tells whether Run has not returned. An outage of the service is no reason to
// start a worker anew, so it is healthy in one. It is what a liveness probe asks.
func (s State) Healthy() bool { return s.Phase != Stopped }

// State returns what the listener is doing. It sends nothing: Depth is the one last
// read. Before Run it is zero.
func (l *Listener[T]) State() State {
	l.mu.Lock()
	s := l.session
	l.mu.Unlock()
	if s == nil {
		return State{}
	}
	return s.state()
}

// state is [Listener.State] of a run.
func (s *session[T]) state() State {
	st := State{
		Requests: s.requested.Load(), Polls: s.polls.Load(), EmptyPolls: s.emptyPolls.Load(), Received: s.received.Load(),
		Renewed: s.dispatcher.Renewed(), Errors: s.report.errors.Load(),
		Succeeded: s.dispatcher.Count(dispatcher.Deleted), Retried: s.dispatcher.Count(dispatcher.Retried),
		Discarded: s.dispatcher.Count(dispatcher.Discarded), Poisoned: s.dispatcher.Count(dispatcher.Poisoned),
		Kept: s.dispatcher.Count(dispatcher.Kept), Snoozed: s.dispatcher.Count(dispatcher.Snoozed), GivenBack: s.dispatcher.Count(dispatcher.GivenBack),
		Lost: s.dispatcher.Count(dispatcher.Lost), Unsettled: s.dispatcher.Count(dispatcher.Unsettled), Late: s.dispatcher.Late(),
		Visibility: s.dispatcher.Visibility(),
	}
	s.health.fill(&st)
	st.LastErrorAt, st.LastError = s.report.lastError()
	st.Loops, st.LoopsPeak, st.LoopsStarted = s.pool.counts()
	st.Running, st.Settling = s.dispatcher.Running()
	s.scaler.mu.Lock()
	st.Depth, st.DepthAt = s.scaler.depth, s.scaler.at
	s.scaler.mu.Unlock()
	return st
}

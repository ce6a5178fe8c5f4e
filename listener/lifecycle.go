package listener

import (
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// health is the phase of a listener, and whether the service answers.
type health struct {
	mu        sync.Mutex
	phase     Phase     // guarded by mu
	begun     time.Time // guarded by mu
	lastPoll  time.Time // when a dequeue last succeeded; guarded by mu
	pollError error     // why the last dequeue failed; guarded by mu
}

// polled records the answer to a dequeue.
func (h *health) polled(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pollError = err; err == nil {
		h.lastPoll = time.Now()
	}
}

func (h *health) enter(p Phase) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase = p; p == Running {
		h.begun = time.Now()
	}
}

func (h *health) since() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.begun)
}

// fill sets the fields of a state that are known here.
func (h *health) fill(s *State) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.Phase, s.LastPoll, s.PollError = h.phase, h.lastPoll, h.pollError
}

// poisonDestination returns where poison is moved, for the log, by a policy that the dispatcher
// has accepted.
func poisonDestination(p poison.Policy, q queue.Queue) string {
	p, err := p.WithDefaults(q)
	if err != nil || p.Keep {
		return "stays in its queue"
	}
	return p.Queue.Name().String()
}

func (s *session) logStart() {
	s.health.enter(Running)
	s.settings.Lock() // the listener can be configured already
	concurrency, bounds := s.concurrency, s.bounds()
	s.settings.Unlock()
	s.report.info("listening", slog.Int("concurrency", concurrency),
		slog.Int("loops_min", bounds.Min), slog.Int("loops_max", bounds.Max), slog.String("poison", s.poison))
}

// logDraining logs that the listener drains, with the number of running handlers.
func (s *session) logDraining(failure error) {
	s.health.enter(Draining)
	running, _ := s.dispatcher.Running()
	attrs := []slog.Attr{slog.Int("running", running), slog.Duration("grace", max(s.options.Grace, 0))}
	if failure != nil {
		attrs = append(attrs, slog.String("error", failure.Error()))
	}
	if running > 0 {
		attrs = append(attrs, slog.String("hint", "a second signal stops at once"))
	}
	s.report.info("draining", attrs...)
}

func (s *session) logStopped() {
	s.health.enter(Stopped)
	s.report.logSuppressed()
	st := s.state()
	attrs := []slog.Attr{
		slog.Int64("succeeded", st.Succeeded), slog.Int64("retried", st.Retried), slog.Int64("poisoned", st.Poisoned),
	}
	for _, one := range []struct {
		name  string
		count int64
	}{{"snoozed", st.Snoozed}, {"discarded", st.Discarded}, {"duplicates", st.Duplicates}, {"kept", st.Kept}, {"given_back", st.GivenBack}, {"lost", st.Lost}, {"unsettled", st.Unsettled}, {"errors", st.Errors}} {
		if one.count > 0 {
			attrs = append(attrs, slog.Int64(one.name, one.count))
		}
	}
	attrs = append(attrs, slog.Int64("requests", st.Requests), slog.String("by_cause", s.meter.Counts().String()), slog.Duration("after", s.health.since().Round(time.Millisecond)))
	s.report.info("stopped", attrs...)
}

package listener

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/scaling/beacon"
)

// accompany runs what goes on until the drain has ended: the rates, and from report on the reports to a
// control queue. The caller must call report when the first loops have started, so that the first report
// has them, and stop after the drain. Stop waits for both.
func (s *session) accompany(ctx context.Context) (report, stop func()) {
	s.rates.begin()
	counting, stopCounting := context.WithCancel(context.Background())
	reporting, stopReporting := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() { s.rates.watch(counting) })
	report = func() {
		if s.beacon != nil {
			work.Go(func() { _ = s.beacon.Run(reporting) }) // its errors go to report.beacon
		}
	}
	// The last report may take a second. Run must return in time also when the drain does not.
	longest := max(s.options.Grace, 0) + s.dispatcher.SettleTimeout() + time.Second
	timer := time.AfterFunc(longest, stopReporting)
	timer.Stop()
	unbound := context.AfterFunc(s.looping, func() { timer.Reset(longest) })
	return report, func() {
		unbound()
		stopCounting()
		stopReporting()
		work.Wait()
		timer.Stop()
	}
}

// changed says that a report should follow soon.
func (s *session) changed() {
	if s.beacon != nil {
		s.beacon.Changed()
	}
}

func (s *session) reported() beacon.Report {
	st := s.state()
	return beacon.Report{
		Queue: s.queue.Name(), Phase: string(st.Phase), Paused: st.PausedBy != NotPaused, Shared: s.options.Slots != nil,
		Received: st.Received, Ended: ended(st.Outcomes), Delayed: st.Delayed, Load: st.Load,
	}
}

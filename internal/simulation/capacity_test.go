package simulation

import "time"

// checkCapacity gives a surviving worker as much work as it can do at once. It is a violation if
// some of its slots or loops are missing.
func (w *world) checkCapacity(p *process) {
	s := p.plan.settled()
	if w.plan.shards.on() || s.isLimited() { // they share slots and requests as they come
		return
	}
	loops := s.maxLoops()
	if s.hookPanic > 0 { // the hook that says how many loops to run may have panicked
		loops = max(s.minLoops(), 1)
	}
	slots := w.plan.share(s.capacity(loops), []*process{p})
	c := w.pace([]*process{p})
	assembled := w.plan.flagEnds() + 2*(c.discovery+c.lingering) + 2*maxDepthInterval
	if hung, _ := w.hanging(p); s.timeout > 0 || hung > 0 {
		return // runs would be cut off, or some slots are still taken
	}
	// One success ends what the worker may take for an outage.
	w.sendJobs(1, time.Millisecond)
	w.waitUntilEmpty([]*process{p})
	if p.adaptive != nil {
		slots = min(slots, p.adaptive.State().Limit)
	}
	// First as many as the minimum of loops can take, so that the others are a backlog.
	first := min(s.capacity(max(s.minLoops(), 1)), slots)
	for _, wave := range []int{first, slots - first} {
		w.sendJobs(wave, 4*assembled)
		time.Sleep(assembled)
	}
	if running := p.listener.State().Running; running < slots { // a message of a newer release may come and go
		w.addViolation("%s has %d slots and got %d jobs, but runs %d", p.plan.name, slots, slots, running)
	}
	w.waitUntilEmpty([]*process{p})
}

// sendJobs sends n jobs that take that long and succeed.
func (w *world) sendJobs(n int, long time.Duration) {
	for range n {
		w.send(w.server("producer"), w.add(jobPlan{form: enveloped, behaviour: succeeds, shortest: long, longest: long}), 0)
	}
}

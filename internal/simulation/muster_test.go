package simulation

import "time"

// muster gives a worker that has survived the storm as much work as it can take at once,
// and complains if some of its slots, or of its loops, are not there any more.
func (w *world) muster(p *process) {
	s := p.plan.settled()
	loops := s.mostLoops()
	if s.hookPanic > 0 { // nobody may have said how many loops there should be
		loops = s.leastLoops()
	}
	slots := s.capacity(loops)
	c := w.pace([]*process{p})
	assembled := 2*(c.discovery+c.lingering) + 2*mostUnasked
	if hung, _ := w.hanging(p); s.timeout > 0 || hung > 0 {
		return // runs would be cut off; or some slots are taken yet
	}
	// One that succeeds at once ends what the worker may take for an outage.
	w.offer(1, time.Millisecond)
	w.clear([]*process{p})
	// First what the fewest loops can take, so that the others are a backlog behind it.
	first := s.capacity(s.leastLoops())
	for _, wave := range []int{first, slots - first} {
		w.offer(wave, 4*assembled)
		time.Sleep(assembled)
	}
	if running := p.listener.State().Running; running != slots {
		w.complain("%s has %d slots and gets %d jobs: %d run", p.plan.name, slots, slots, running)
	}
	w.clear([]*process{p})
}

// offer sends some jobs that take so long and succeed.
func (w *world) offer(n int, long time.Duration) {
	for range n {
		w.send(w.server("producer"), w.add(jobPlan{form: enveloped, manner: succeeds, shortest: long, longest: long}), 0)
	}
}

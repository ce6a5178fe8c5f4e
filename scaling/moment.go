package scaling

// Windows over which figures of a moment are taken, in seconds.
const (
	leastAverage = 60.0   // rates are averaged over a handling time, at least this
	mostAverage  = 600.0  // and at most this
	trendOver    = 300.0  // a trend must show in the latest half of this, and in all of it
	handlingOver = 86400. // a handling time and a number of slots are good for a day
)

// mostSamples bounds what one moment looks at.
const mostSamples = 128

// moment is what was known at one time, and how many instances that called for.
type moment struct {
	instances, ready float64
	readyKnown       bool

	backlog      float64 // messages waiting for an instance
	backlogKnown bool
	backlogIsMax bool    // it may include messages in work
	depth        float64 // including those in work
	depthKnown   bool
	ahead        float64 // the backlog when an instance asked for now would work

	arrival      float64 // a second
	arrivalKnown bool
	later        float64 // the arrival when an instance asked for now would work
	service      float64 // a second
	serviceKnown bool
	running      float64
	runningKnown bool

	handling      float64 // seconds that a message occupies a slot
	handlingKnown bool    // from the instances, or stated in the policy
	slots         float64 // of one instance
	slotsKnown    bool    // from the instances, or stated in the policy

	load float64 // slots that the lasting load occupies
	need float64 // instances for load and backlog, without spare ones
}

// look fills in what was known at the time of sample i, and what that called for.
func (r *rules) look(h History, i int, m *moment) {
	s := &h[i]
	*m = moment{instances: instances(s)}
	m.ready, m.readyKnown = count(s.Ready)
	m.depth, m.depthKnown = count(s.Depth)
	r.perInstance(h, i, m)
	r.rates(h, i, m)
	r.backlog(s, m)
	r.occupancy(m)
	r.lookAhead(h, i, m)
	m.need = (m.load + max(m.backlog, m.ahead)*m.handling/r.target) / (r.utilization * m.slots)
}

// perInstance finds the handling time and the slots: the latest known of a day, because they are
// properties of the program, or else the policy's.
func (r *rules) perInstance(h History, i int, m *moment) {
	for j := i; j >= 0 && !(m.handlingKnown && m.slotsKnown); j-- {
		if h[i].At.Sub(h[j].At).Seconds() > handlingOver {
			break
		}
		if !m.handlingKnown {
			m.handling, m.handlingKnown = handling(&h[j])
		}
		if !m.slotsKnown {
			m.slots, m.slotsKnown = slots(&h[j])
		}
	}
	if !m.handlingKnown {
		m.handling, m.handlingKnown = r.handling, !r.guessedHandling
	}
	if !m.slotsKnown {
		m.slots, m.slotsKnown = r.slots, !r.guessedSlots
	}
}

// rates averages the figures of the latest samples, and finds the trend of the arrivals.
func (r *rules) rates(h History, i int, m *moment) {
	var arrival, service, running, busy mean
	var half, whole fit
	newest := 0.0
	over := min(max(m.handling, leastAverage), mostAverage)
	oldest, oldestDepth := 0.0, 0.0
	last := 1.0 // behind the newest
	for j := i; j >= 0 && i-j < mostSamples; j-- {
		x := h[j].At.Sub(h[i].At).Seconds()
		if x >= last {
			continue // a sample from the future, or twice the same
		}
		last = x
		if -x >= max(over, trendOver) {
			break
		}
		s := &h[j]
		a, known := rate(s.Arrival)
		if known {
			if whole.n == 0 {
				newest = a
			}
			if -x < trendOver {
				whole.add(x, a-newest)
			}
			if -x < trendOver/2 {
				half.add(x, a-newest)
			}
		}
		if -x >= over {
			continue
		}
		arrival.add(a, known)
		service.add(rate(s.Service))
		running.add(count(s.Running))
		if d, known := count(s.Depth); known && m.depthKnown && x < 0 {
			oldest, oldestDepth = x, d
		}
	}
	_ = busy
	m.arrival, m.arrivalKnown = arrival.of()
	m.service, m.serviceKnown = service.of()
	m.running, m.runningKnown = running.of()
	if !m.arrivalKnown && m.serviceKnown && oldest < 0 {
		// What came is what went, and what the depth has grown by.
		m.arrival, m.arrivalKnown = max(m.service+(m.depth-oldestDepth)/-oldest, 0), true
	}
	// The average is as old as the middle of its window.
	m.later = min(m.arrival+min(half.rise(), whole.rise())*(r.start+over/2), 2*m.arrival)
}

// backlog is what waits for an instance: without what is in work, as far as that is known.
func (r *rules) backlog(s *Sample, m *moment) {
	if m.backlog, m.backlogKnown = count(s.Visible); m.backlogKnown {
		return
	}
	if !m.depthKnown {
		return
	}
	m.backlogKnown = true
	work, workKnown := count(s.InWork)
	if !workKnown {
		work, workKnown = count(s.Running)
	}
	if !workKnown {
		work = min(m.depth, r.working(m)*m.slots) // they take what they can
	}
	delayed, _ := count(s.Delayed)
	m.backlogIsMax = !workKnown
	m.backlog = max(m.depth-work-delayed, 0)
}

// working is how many instances work, as far as is known.
func (r *rules) working(m *moment) float64 {
	if m.readyKnown {
		return min(m.ready, m.instances)
	}
	return m.instances
}

// occupancy is how many slots the lasting load occupies: arrivals × handling time, by Little's law.
func (r *rules) occupancy(m *moment) {
	busy := m.running
	if !m.runningKnown {
		busy = min(m.depth, r.working(m)*m.slots)
	}
	if !m.arrivalKnown {
		m.load = busy
		return
	}
	m.load = m.later * m.handling
}

// lookAhead estimates the backlog at the time when an instance that is asked for now would work.
// Until then, those serve that work now, and those that were asked for and come meanwhile.
func (r *rules) lookAhead(h History, i int, m *moment) {
	m.ahead = m.backlog
	if !m.arrivalKnown {
		return
	}
	m.ahead = max(m.backlog+(m.arrival-r.capacity(m))*r.start, 0)
}

// capacity is how many messages a second the working instances handle.
func (r *rules) capacity(m *moment) float64 { return r.working(m) * m.slots / m.handling }

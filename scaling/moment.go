package scaling

// Windows over which figures are taken, in seconds.
const (
	leastAverage = 60.0    // rates are averaged over a handling time, at least this
	mostAverage  = 600.0   // and at most this
	trendOver    = 300.0   // a trend must show in all of this, and in its latest half
	latestOver   = 86400.0 // a handling time and a number of slots are good for a day
)

// mostSamples bounds how many samples a moment looks at.
const mostSamples = 128

// moment is what was known at one time, and how many instances that called for.
type moment struct {
	instances  float64 // those included that were starting
	working    float64 // of them
	coming     float64 // that begin to work before a new one would, as an average over that time
	ready      float64 // that report
	readyKnown bool

	depth        float64 // messages in the queues
	depthKnown   bool
	backlog      float64 // messages waiting for an instance
	backlogKnown bool
	backlogIsMax bool    // it may include messages in work
	ahead        float64 // the backlog when a new instance would work

	arrival      float64 // messages a second
	arrivalKnown bool    // it is not an estimate
	later        float64 // arrivals when a new instance would work
	forecast     forecast
	service      float64 // messages a second
	serviceKnown bool
	running      float64 // handlers
	runningKnown bool

	handling      float64 // seconds that a message occupies a slot
	handlingKnown bool    // it is not a guess
	slots         float64 // of one instance
	slotsKnown    bool    // it is not a guess

	load float64 // slots that the lasting load occupies
	need float64 // instances for load and backlog, without spare ones
}

// look fills in what was known at the time of sample i, and what that called for.
func (r *rules) look(h History, i int, m *moment) {
	s := &h[i]
	*m = moment{instances: instances(s)}
	m.ready, m.readyKnown = count(s.Ready)
	m.depth, m.depthKnown = count(s.Depth)
	r.starting(h, i, m)
	r.perInstance(s, m)
	r.rates(h, i, m)
	r.waiting(s, m)
	m.need = r.need(m, max(m.backlog, m.ahead))
}

// need is how many instances a load and a backlog call for: those that occupy their slots up to the
// utilization. A message occupies no more than one slot, however long it takes.
func (r *rules) need(m *moment, backlog float64) float64 {
	return (m.load + backlog*min(m.handling/r.target, 1)) / (r.utilization * m.slots)
}

// perInstance takes the handling time and the slots from the sample, or else the latest known ones.
func (r *rules) perInstance(s *Sample, m *moment) {
	if m.handling, m.handlingKnown = handling(s); !m.handlingKnown {
		m.handling, m.handlingKnown = r.latest.handling, r.latest.handlingKnown
	}
	m.slots, m.slotsKnown = slots(s)
	if !m.slotsKnown {
		m.slots, m.slotsKnown = r.latest.slots, r.latest.slotsKnown
	}
	if !m.slotsKnown {
		m.slots, m.slotsKnown = r.slots, !r.guessedSlots
	}
}

// latest are the figures of one instance that were known last.
type latest struct {
	handling, slots           float64
	handlingKnown, slotsKnown bool
}

// findLatest looks for a handling time and a number of slots in the samples of a day: they are
// properties of the program, and change less than its load.
func (r *rules) findLatest(h History) {
	newest := len(h) - 1
	l := &r.latest
	for j := newest; j >= 0 && !(l.handlingKnown && l.slotsKnown); j-- {
		if h[newest].At.Sub(h[j].At).Seconds() > latestOver {
			break
		}
		if !l.handlingKnown {
			l.handling, l.handlingKnown = handling(&h[j])
		}
		if !l.slotsKnown {
			l.slots, l.slotsKnown = slots(&h[j])
		}
	}
}

// rates averages the figures of the latest samples, and finds their trend.
func (r *rules) rates(h History, i int, m *moment) {
	over := min(max(m.handling, leastAverage), mostAverage)
	w := window{full: true}
	last := 1.0 // later than the newest
	for j := i; j >= 0 && i-j < mostSamples; j-- {
		x := h[j].At.Sub(h[i].At).Seconds()
		if x >= last {
			continue // from the future, or twice the same
		}
		last = x
		if -x >= max(over, trendOver) {
			break
		}
		w.addTrend(&h[j], x)
		if -x < over {
			w.add(&h[j], x, m)
		}
	}
	m.arrival, m.arrivalKnown = w.arrival.of()
	m.service, m.serviceKnown = w.service.of()
	m.running, m.runningKnown = w.running.of()
	if !m.arrivalKnown && m.serviceKnown && m.depthKnown && w.oldest < 0 {
		// What came is what went, and what the depth has grown by.
		m.arrival = max(m.service+(m.depth-w.oldestDepth)/-w.oldest, 0)
		m.arrivalKnown = true
	}
	// The average is as old as the middle of its window.
	rise := min(w.half.rise(), w.whole.rise())
	m.later = min(m.arrival+rise*(r.start+over/2), 2*m.arrival)
	if v, known := w.handling.of(); known {
		m.handling = v
	}
	r.occupation(&w, over, m)
	r.foresee(h, i, m)
	r.occupancy(&w, m)
}

// window is what the latest samples say together.
type window struct {
	arrival, service, running, working mean
	handling                           mean // seconds
	busy                               mean // slots that messages occupy at most
	half, whole, depth                 fit
	newest, newestDepth                float64 // what the points of the fits are counted from
	oldest, oldestDepth                float64 // the earliest depth, and when
	full                               bool    // more waited all the time than the working instances have slots
}

func (w *window) addTrend(s *Sample, x float64) {
	if -x >= trendOver {
		return
	}
	a, known := rate(s.Arrival)
	if !known {
		if d, known := count(s.Depth); known {
			if w.depth.n == 0 {
				w.newestDepth = d
			}
			w.depth.add(x, d-w.newestDepth)
		}
		return
	}
	if w.whole.n == 0 {
		w.newest = a
	}
	w.whole.add(x, a-w.newest)
	if -x < trendOver/2 {
		w.half.add(x, a-w.newest)
	}
}

func (w *window) add(s *Sample, x float64, m *moment) {
	w.arrival.add(rate(s.Arrival))
	w.service.add(rate(s.Service))
	w.running.add(count(s.Running))
	w.handling.add(handling(s))
	if d, known := count(s.Depth); known {
		w.busy.add(min(d, min(instances(s), m.working)*m.slots), true) // they take what they can
		if x < 0 {
			w.oldest, w.oldestDepth = x, d
		}
	}
	waiting, waitingKnown := count(s.Visible)
	working, workingKnown := count(s.Ready)
	w.working.add(working, workingKnown)
	w.full = w.full && waitingKnown && workingKnown && waiting >= working*m.slots
}

// What it takes to judge the time that a message occupies a slot by what comes out.
const (
	enoughMessages = 10
	enoughRunning  = 1   // on average
	enoughSamples  = 3   //
	tolerance      = 1.1 // of such a judgment, against noise
)

// occupation corrects the handling time by Little's law: running handlers / service. That also counts
// the attempts that fail. While messages wait all the time, every slot counts as running: what
// else limits an instance limits it just so.
func (r *rules) occupation(w *window, over float64, m *moment) {
	ended := m.serviceKnown && m.service*over >= enoughMessages
	if ended && m.runningKnown && m.running >= enoughRunning {
		byRunning := m.running / m.service
		if !m.handlingKnown {
			m.handling, m.handlingKnown = byRunning, true
		} else if 3*m.handling <= over { // long jobs run before they are served
			m.handling = max(m.handling, byRunning/tolerance)
		}
	}
	if !m.handlingKnown {
		m.handling, m.handlingKnown = r.handling, !r.guessedHandling
	}
	if working, known := w.working.of(); ended && known && w.full && w.service.n >= enoughSamples && 3*m.handling <= over {
		m.handling = max(m.handling, working*m.slots/m.service/tolerance)
	}
}

// waiting is the backlog: messages that are not in work, as far as that is known. And what of it will
// be there when a new instance would work: until then, those serve that work now or come meanwhile.
func (r *rules) waiting(s *Sample, m *moment) {
	m.backlog, m.backlogKnown = count(s.Visible)
	if !m.backlogKnown && m.depthKnown {
		m.backlogKnown = true
		work, known := count(s.InWork)
		if !known {
			work, known = count(s.Running)
		}
		if !known {
			work = min(m.depth, m.working*m.slots) // they take what they can
		}
		delayed, _ := count(s.Delayed)
		m.backlogIsMax = !known
		m.backlog = max(m.depth-work-delayed, 0)
	}
	m.ahead = max(m.backlog+r.growth(m)*r.start, 0)
}

// growth is how many messages more will wait every second until a new instance would work.
func (r *rules) growth(m *moment) float64 {
	return m.arrival - (m.working+m.coming)*m.slots/m.handling
}

// occupancy is how many slots the lasting load occupies: arrivals × handling time, by Little's law.
// If arrivals are unknown, they follow from the slots that are occupied and from the growth of the depth.
func (r *rules) occupancy(w *window, m *moment) {
	busy := m.running
	if !m.runningKnown {
		busy, _ = w.busy.of()
	}
	if !m.arrivalKnown {
		m.arrival = busy/m.handling + w.depth.rise()
		m.later = max(m.arrival, m.forecast.arrival)
	}
	m.load = m.later * m.handling
	if !m.handlingKnown {
		m.load = max(m.load, busy)
	}
}

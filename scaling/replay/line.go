package replay

// attempts is how many times a message that fails is handled before it goes to the poison queue: the default of a listener.
const attempts = 5

// retryDelay returns how many seconds a message that has failed so many times waits: the default of a listener, without its
// jitter of 10 %.
func retryDelay(failed int) int { return failed * failed * failed * failed }

// batch is an amount of messages: healthy ones, and poison by how often it has failed before.
type batch struct {
	healthy float64
	poison  [attempts]float64
}

func (b *batch) total() float64 {
	n := b.healthy
	for _, p := range b.poison {
		n += p
	}
	return n
}

func (b *batch) add(more *batch) {
	b.healthy += more.healthy
	for i, p := range more.poison {
		b.poison[i] += p
	}
}

func (b *batch) take(share float64) batch {
	if share >= 1 {
		all := *b
		*b = batch{}
		return all
	}
	var part batch
	part.healthy = b.healthy * share
	b.healthy -= part.healthy
	for i := range b.poison {
		part.poison[i] = b.poison[i] * share
		b.poison[i] -= part.poison[i]
	}
	return part
}

// cohort are the messages that became visible in one second, evenly within it. What is left of it became visible from then to then, in seconds
// since the beginning.
type cohort struct {
	batch
	from, to float64
}

// line are the visible messages: first come, first served.
type line struct {
	cohorts []cohort
	first   int // of the cohorts; those before it are served
	waiting float64
}

func (l *line) join(c cohort) {
	if n := c.total(); n > 0 {
		l.cohorts = append(l.cohorts, c)
		l.waiting += n
	}
}

// started are messages whose handlers begin: the first and last of them became visible and began at these times, and those between evenly.
type started struct {
	batch
	cameFirst, cameLast   float64
	beganFirst, beganLast float64
}

// serve lets at most so many messages begin in the second that begins at now, at an even rate. The newest cohort may be that of this second: its
// messages begin no sooner than they come. It calls began for each part that begins, in order.
func (l *line) serve(now, most float64, began func(*started)) {
	if l.first == len(l.cohorts) || most <= 0 {
		return
	}
	// Where the rate exceeds the arrivals, the line is empty from a time on, and messages begin as they come.
	coming := 0.0
	if newest := &l.cohorts[len(l.cohorts)-1]; newest.from >= now {
		coming = newest.total()
	}
	before := l.waiting - coming
	busy := 1.0 // how much of the second the line is not empty
	if most > coming && before/(most-coming) < 1 {
		busy = max(before, 0) / (most - coming)
	}
	served := 0.0
	for l.first < len(l.cohorts) && served < most {
		c := &l.cohorts[l.first]
		n := c.total()
		part := started{cameFirst: c.from, beganFirst: now + served/most}
		share := min((most-served)/n, 1)
		asItComes := busy < 1 && coming > 0 && l.first == len(l.cohorts)-1
		if asItComes {
			share = busy
		}
		if share > 0 {
			part.cameLast = c.from + (c.to-c.from)*share
			part.batch = c.take(share)
			served += n * share
			part.beganLast = now + served/most
			began(&part)
		}
		if asItComes { // the rest of this second begins as it comes
			rest := started{batch: c.take(1), cameFirst: part.cameLast, cameLast: c.to, beganFirst: part.cameLast, beganLast: c.to}
			if share == 0 {
				rest.cameFirst, rest.beganFirst = c.from, c.from
			}
			served += n * (1 - share)
			began(&rest)
			share = 1
		}
		if share < 1 {
			c.from = part.cameLast
			break
		}
		l.first++
	}
	l.waiting = max(l.waiting-served, 0)
	l.tidy()
}

// tidy frees the memory of cohorts that are served, now and then.
func (l *line) tidy() {
	if l.first == len(l.cohorts) {
		l.cohorts, l.first, l.waiting = l.cohorts[:0], 0, 0
	} else if l.first > 1024 && l.first > len(l.cohorts)/2 {
		l.cohorts = append(l.cohorts[:0], l.cohorts[l.first:]...)
		l.first = 0
	}
}

// age returns how long the first message has been visible, in seconds; 0 if there is none.
func (l *line) age(now float64) float64 {
	if l.first == len(l.cohorts) {
		return 0
	}
	return max(now-l.cohorts[l.first].from, 0)
}

func (l *line) left() batch {
	var all batch
	for i := range l.cohorts[l.first:] {
		all.add(&l.cohorts[l.first+i].batch)
	}
	return all
}

// late returns how many of the healthy messages end later than sla after they came, and the longest time that one takes. Between the first
// and the last of them the time is linear, so the share is exact.
func (s *started) late(handling, sla float64) (late, longest float64) {
	first := s.beganFirst - s.cameFirst + handling
	last := s.beganLast - s.cameLast + handling
	low, high := min(first, last), max(first, last)
	const exact = 1e-6 // seconds: sums of a day are no more exact
	switch {
	case high <= sla+exact:
		return 0, high
	case low > sla+exact:
		return s.healthy, high
	}
	return s.healthy * (high - sla) / (high - low), high
}

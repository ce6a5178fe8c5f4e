package replay

import (
	"math"
	"math/rand/v2"
)

// fleet are the instances: starting, ready, and draining. Times are whole seconds since the beginning.
type fleet struct {
	trace    *Trace
	random   *rand.Rand
	starting map[int]int // when they will be ready → how many
	waiting  int         // sum of starting
	ready    int
	draining map[int]int // when they have ended → how many
	leaving  int         // sum of draining

	changes, reversals int
	up                 bool // the direction of the last change
}

// asked returns how many instances there are: what was last asked for.
func (f *fleet) asked() int { return f.ready + f.waiting }

// tick lets those become ready, and those end, whose time has come.
func (f *fleet) tick(now int) {
	if n := f.starting[now]; n > 0 {
		f.ready += n
		f.waiting -= n
		delete(f.starting, now)
	}
	if n := f.draining[now]; n > 0 {
		f.leaving -= n
		delete(f.draining, now)
	}
}

// scale asks for n instances, within 0 and the trace's Max. Surplus ones end: first those that start, the latest first, because they hold no jobs;
// then ready ones, which finish their jobs within so many seconds. It returns how many of the ready ones leave.
func (f *fleet) scale(now, n, finish int) (leave int) {
	n = min(max(n, 0), f.trace.Max)
	if n == f.asked() {
		return 0
	}
	up := n > f.asked()
	if f.changes > 0 && up != f.up {
		f.reversals++
	}
	f.changes++
	f.up = up
	if up {
		f.start(now, n-f.asked())
		return 0
	}
	f.cancel(f.asked() - n)
	if leave = f.asked() - n; leave <= 0 {
		return 0
	}
	f.ready -= leave
	if finish > 0 {
		f.draining[now+finish] += leave
		f.leaving += leave
	}
	return leave
}

// start asks for more instances, each of which takes its own time.
func (f *fleet) start(now, more int) {
	for range more {
		takes := f.trace.Start.Seconds()
		if f.trace.Vary > 0 {
			takes *= 1 + f.trace.Vary*(2*f.random.Float64()-1)
		}
		if takes < 0.5 {
			f.ready++
			continue
		}
		f.starting[now+int(math.Round(takes))]++
		f.waiting++
	}
}

// cancel ends starting instances, at most so many, the latest first.
func (f *fleet) cancel(surplus int) {
	for surplus > 0 && f.waiting > 0 {
		latest := 0
		for at := range f.starting {
			latest = max(latest, at)
		}
		n := min(surplus, f.starting[latest])
		surplus -= n
		f.waiting -= n
		if f.starting[latest] -= n; f.starting[latest] == 0 {
			delete(f.starting, latest)
		}
	}
}

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
	// The memory of cohorts that are served is freed now and then.
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

// ring are batches by the second that they are due in, of the next few seconds.
type ring []batch

func (r ring) add(at int, b *batch) { r[at%len(r)].add(b) }

func (r ring) take(at int) batch { return r[at%len(r)].take(1) }

// work are the messages whose handlers run, by the second in which these return.
type work struct {
	ends     ring
	spent    []float64 // the seconds that those take which return in a second
	onActive []float64 // how many of them are on instances that do not drain
	active   float64   // sum of onActive
	draining float64   // those on instances that do
}

// newWork returns no work, with handlers that take so many seconds at most.
func newWork(longest float64) work {
	n := int(math.Ceil(longest)) + 2
	return work{ends: make(ring, n), spent: make([]float64, n), onActive: make([]float64, n)}
}

func (w *work) running() float64 { return w.active + w.draining }

// room returns how many handlers can begin in the second that begins at now: of slots that are free or become free within it. A
// handler that takes less than a second leaves its slot to the next within it.
func (w *work) room(now int, slots, handling float64) float64 {
	if handling < 1 {
		return slots / handling
	}
	return max(slots-w.active+w.onActive[now%len(w.onActive)], 0)
}

// begin adds handlers that begin evenly within a second, and return as evenly.
func (w *work) begin(s *started, handling float64) {
	first, last := s.beganFirst+handling, s.beganLast+handling
	rest, took := s.batch, last-first
	for at := math.Floor(first); ; at++ {
		share := 1.0 // of the rest
		if last > at+1 {
			share = (at + 1 - max(first, at)) / (last - max(first, at))
		}
		part := rest.take(share)
		n, i := part.total(), int(at)%len(w.ends)
		w.ends.add(int(at), &part)
		w.spent[i] += n * handling
		w.onActive[i] += n
		w.active += n
		if share >= 1 || took <= 0 {
			return
		}
	}
}

// end returns what ends in the second that begins at now, and the seconds that it took.
func (w *work) end(now int) (ended batch, spent float64) {
	i := now % len(w.ends)
	ended, spent = w.ends.take(now), w.spent[i]
	n := ended.total()
	w.active = max(w.active-w.onActive[i], 0)
	w.draining = max(w.draining-(n-w.onActive[i]), 0)
	w.spent[i], w.onActive[i] = 0, 0
	return ended, spent
}

// drain lets this share of the instances finish what they have: their handlers do not make room when they return.
func (w *work) drain(share float64) {
	for i, n := range w.onActive {
		w.onActive[i] = n * (1 - share)
		w.active -= n * share
		w.draining += n * share
	}
	w.active = max(w.active, 0)
}

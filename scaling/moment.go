package scaling

import (
	"math"
	"time"
)

// Windows over which figures are taken, in seconds.
const (
	leastAverage = 60.0  // rates are averaged over a handling time, at least this
	mostAverage  = 600.0 // and at most this
	trendOver    = 300.0 // a trend must show in all of this, and in each half of it

	latestAverage = 20.0 // arrivals of this time tell that the load has changed
	leastLatest   = 2    // samples in it
)

// latestOver is for how long a handling time and a number of slots are good.
const latestOver = 24 * time.Hour

// mostSamples bounds how many samples a moment looks at.
const mostSamples = 300

// moment is what was known at one time, and how many instances that called for.
type moment struct {
	instances  float64 // those included that were starting
	working    float64 // of them
	expected   float64 // that work or should before a new one would
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
	lasting      float64 // arrivals, without those that came all at once
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

	cpu, memory use

	load float64 // slots that the lasting load occupies
	need float64 // instances for load and backlog, without spare ones
}

// look fills in what was known at the time of the k-th newest sample, and what that called for.
func (c *choice) look(k int, m *moment) {
	p := c.past.at(k)
	*m = moment{instances: p.instances}
	m.ready, m.readyKnown = p.ready, known(p.ready)
	m.depth, m.depthKnown = p.depth, known(p.depth)
	c.starting(k, m)
	c.perInstance(k, m)
	c.rates(k, m)
	c.waiting(k, m)
	m.need = c.need(m, max(m.backlog, m.ahead))
	c.uses(k, m)
}

// fillOver is how many times Wait a backlog takes at least to grow to what Wait allows. If it grew
// sooner, instances would be removed that are soon wanted again.
const fillOver = 5

// need is how many instances a load and a backlog call for: those that occupy their slots up to the
// utilization. A message occupies no more than one slot, however long it takes. What may wait calls
// for none; what is missing from that is filled slowly, because arrivals may rise meanwhile.
func (r *rules) need(m *moment, backlog float64) float64 {
	excess, over := backlog-m.later*r.wait, max(r.target, m.handling)
	if excess < 0 {
		over = max(over, fillOver*r.wait)
	}
	return max(m.load+excess*m.handling/over, 0) / (r.utilization * m.slots)
}

// perInstance takes the handling time and the slots from the sample, or else the latest known ones.
func (c *choice) perInstance(k int, m *moment) {
	p := c.past.at(k)
	m.handling, m.slots = p.handling, p.slots
	if !known(m.handling) {
		m.handling = c.latest.handling
	}
	if !known(m.slots) {
		m.slots = c.latest.slots
	}
	m.handlingKnown = known(m.handling)
	if m.slotsKnown = known(m.slots) || !c.guessedSlots; !known(m.slots) {
		m.slots = c.rules.slots
	}
}

// latest are the figures of one instance that were known last, or NaN.
type latest struct{ handling, slots float64 }

// findLatest looks for a handling time and a number of slots in the samples of a day: they are
// properties of the program, and change less than its load.
func findLatest(h History) latest {
	newest := len(h) - 1
	l := latest{unknown, unknown}
	for j := newest; j >= 0 && !(known(l.handling) && known(l.slots)); j-- {
		if h[newest].At.Sub(h[j].At) > latestOver {
			break
		}
		if !known(l.handling) {
			l.handling = handling(&h[j])
		}
		if !known(l.slots) {
			l.slots = slots(&h[j])
		}
	}
	return l
}

// rates averages the figures of the latest samples, and finds their trend.
func (c *choice) rates(k int, m *moment) {
	over := leastAverage
	if m.handlingKnown {
		over = min(max(m.handling, leastAverage), mostAverage)
	}
	now := c.past.at(k).age
	w := window{next: unknown}
	for j := k; j-k < mostSamples; j++ {
		p := c.past.at(j)
		if p == nil || p.age-now >= max(over, trendOver) {
			break
		}
		if p.age-now < trendOver {
			w.addTrend(p, now)
		}
		w.addWork(p, m.slots)
		if p.age-now < over {
			w.add(p, now, m)
		}
	}
	m.arrival, m.service, m.running = w.arrival.of(), w.service.of(), w.running.of()
	m.serviceKnown, m.runningKnown = known(m.service), known(m.running)
	if !known(m.arrival) && m.depthKnown && w.span > 0 {
		// What came is what went, and what the depth has grown by.
		m.arrival = max(m.service+(m.depth-w.oldestDepth)/w.span, 0)
	}
	m.arrivalKnown = known(m.arrival)
	lag := over / 2 // the average is as old as the middle of its window
	if w.changed(m.arrival) {
		m.arrival, lag = w.latest.of(), latestAverage/2
	}
	if m.lasting = m.arrival; w.latest.n >= leastLatest {
		m.lasting = min(m.arrival, w.lowest)
	}
	m.later = min(m.arrival+w.rise()*(c.start+lag), 2*m.arrival)
	if w.weight > 0 {
		m.handling = w.spent / w.weight
	}
	c.occupation(&w, over, m)
	if !m.arrivalKnown { // what occupies the slots, and the growth of the depth, say how many came
		m.arrival = max(w.taken(m)/m.handling+w.growth(), 0)
		m.later, m.lasting = m.arrival, m.arrival
	}
	load := max(m.arrival, m.later*c.utilization) // growth that is expected may use the headroom
	if c.foresee(k, m); m.forecast.used {
		load = m.later
	}
	m.load = load * m.handling
	if !m.handlingKnown {
		m.load = max(m.load, w.taken(m))
	}
}

// window is what the latest samples say together.
type window struct {
	arrival, service, running  mean
	spent, weight              float64 // handling times by their weights, and the sum of these
	occupied, ended            mean    // slots, and the messages a second that left them
	next                       float64 // the service of the sample after
	busy                       mean    // slots that messages occupy at most
	depths                     mean
	older, newer, whole, depth fit
	latest                     mean    // arrivals of the latest time
	lowest, highest            float64 // of these
	jumps                      mean    // squares of the differences between one sample's arrivals and the next
	newest, newestDepth        float64 // what the points of the fits are counted from
	last                       float64 // the point before
	span, oldestDepth          float64 // the earliest depth, and how long ago
}

func (w *window) addTrend(p *point, now float64) {
	x := now - p.age
	if !known(p.arrival) {
		if known(p.depth) {
			if w.depth.n == 0 {
				w.newestDepth = p.depth
			}
			w.depth.add(x, p.depth-w.newestDepth)
		}
		return
	}
	if w.whole.n == 0 {
		w.newest = p.arrival
	}
	y := p.arrival - w.newest
	if w.whole.n > 0 {
		w.jumps.add((y - w.last) * (y - w.last))
	}
	w.last = y
	w.whole.add(x, y)
	if -x < trendOver/2 {
		w.newer.add(x, y)
	} else {
		w.older.add(x, y)
	}
}

// changed reports whether the load has changed: each of the latest samples is further from the average
// than the noise allows. The noise follows from how much samples differ from the next.
func (w *window) changed(average float64) bool {
	noise := certainty * math.Sqrt(w.jumps.of()/2/w.latest.n)
	return w.latest.n >= leastLatest && (w.lowest > average+noise || w.highest < average-noise)
}

// rise is by how much arrivals grow per second, or 0. A trend shows in both halves of the time, which
// a step does not. It has ended when the latest arrivals are below the average.
func (w *window) rise() float64 {
	if w.latest.of() < w.arrival.of() {
		return 0
	}
	return max(min(w.whole.rise(), w.older.slope(), w.newer.slope()), 0)
}

// growth is by how much the depth grows per second, below 0 if it falls.
func (w *window) growth() float64 {
	if fall := w.depths.of() - w.newestDepth; fall > 0 && w.span > 0 {
		return -fall / (w.span / 2) // the average is as old as the middle of the time
	}
	return w.depth.rise()
}

func (w *window) add(p *point, now float64, m *moment) {
	w.arrival.add(p.arrival)
	if p.age-now < latestAverage && known(p.arrival) {
		if w.latest.n == 0 {
			w.lowest, w.highest = p.arrival, p.arrival
		}
		w.latest.add(p.arrival)
		w.lowest, w.highest = min(w.lowest, p.arrival), max(w.highest, p.arrival)
	}
	w.service.add(p.service)
	w.running.add(p.running)
	if known(p.depth) {
		w.depths.add(p.depth)
		w.busy.add(min(p.depth, min(p.instances, m.working)*m.slots)) // they take what they can
		w.span, w.oldestDepth = p.age-now, p.depth
	}
}

// addWork adds what a sample says about the time that a message occupies a slot. Each message counts the
// same, so the few long ones of a slow dependency do not stand for all that wait.
func (w *window) addWork(p *point, slots float64) {
	if known(p.handling) {
		weight := leastWeight
		if p.service > weight { // not if it is unknown
			weight = p.service
		}
		w.spent += p.handling * weight
		w.weight += weight
	}
	occupied := p.running
	if p.visible >= p.ready*slots { // every slot, whatever limits them; not if one is NaN
		occupied = p.ready * slots
	}
	if known(occupied) && known(w.next) { // what was in work at one sample ends before the next
		w.occupied.add(occupied)
		w.ended.add(w.next)
	}
	w.next = p.service
}

// leastWeight is the weight of a handling time if nobody knows how many messages it is the average of.
const leastWeight = 1e-6

// taken is how many slots messages occupy on average.
func (w *window) taken(m *moment) float64 {
	if m.runningKnown {
		return m.running
	}
	if w.busy.n == 0 {
		return 0
	}
	return w.busy.of()
}

// What it takes to judge the time that a message occupies a slot by what comes out.
const (
	enoughMessages = 10
	enoughOccupied = 1   // slots, on average
	tolerance      = 1.1 // of such a judgment, against noise
)

// occupation corrects the handling time by Little's law: occupied slots / service. That also counts
// the attempts that fail. While messages wait, every slot counts as occupied: what else limits an
// instance limits it just so.
func (c *choice) occupation(w *window, over float64, m *moment) {
	ended := m.service*over >= enoughMessages // not if it is NaN
	if occupied := w.occupied.of(); ended && w.ended.sum > 0 && occupied >= enoughOccupied {
		byLaw := occupied / w.ended.of()
		if !m.handlingKnown {
			m.handling, m.handlingKnown = byLaw, true
		} else if 3*m.handling <= over { // long jobs run before they are served
			m.handling = max(m.handling, byLaw/tolerance)
		}
	}
	if !m.handlingKnown {
		m.handling, m.handlingKnown = c.rules.handling, !c.guessedHandling
	}
}

// waiting is the backlog: messages that are not in work, as far as that is known. And what of it will
// be there when a new instance would work: until then, those serve that work now or come meanwhile.
func (c *choice) waiting(k int, m *moment) {
	p := c.past.at(k)
	m.backlog, m.backlogKnown = p.visible, known(p.visible) || m.depthKnown
	if !m.backlogKnown {
		m.backlog = 0
	} else if !known(p.visible) {
		work := p.inWork
		if !known(work) {
			work = p.running
		}
		if !known(work) {
			work = min(m.depth, m.working*m.slots) // they take what they can
			m.backlogIsMax = work > 0
		}
		m.backlog = max(m.depth-work, 0)
		if known(p.delayed) {
			m.backlog = max(m.backlog-p.delayed, 0)
		}
	}
	m.ahead = max(m.backlog+m.growth()*c.start, 0)
}

// growth is how many messages more will wait every second until a new instance would work.
func (m *moment) growth() float64 {
	return m.lasting - (m.working+m.coming)*m.slots/m.handling
}

// starting tells working instances from those that still start. Those that were asked for within
// the time of a start come after the rest of it.
func (c *choice) starting(k int, m *moment) {
	now := c.past.at(k).age
	base := m.instances // how many there were before the time of a start
	n := 1              // samples within it
	for p := c.past.at(k + 1); p != nil; p = c.past.at(k + n) {
		base = p.instances
		if p.age-now >= c.start {
			break
		}
		n++
	}
	m.working = min(base, m.instances)
	if m.readyKnown {
		m.working = min(m.ready, m.instances)
	}
	// Those that should work by now and do not are not counted on.
	base = max(base, m.working)
	m.expected = m.working + max(m.instances-base, 0)
	for j := k + n - 1; j >= k; j-- {
		length := c.start
		if p := c.past.at(j + 1); p != nil {
			length = p.age - c.past.at(j).age
		}
		p := c.past.at(j)
		left := c.start - (p.age - now)
		if asked := min(p.instances, m.instances); asked > base {
			m.coming += (asked - base) * min(length, left) / c.start
		}
	}
}

// fit is a least-squares line through figures over time. Both are counted from the newest, which
// keeps the sums accurate. The zero value has no points.
type fit struct{ n, x, y, xx, xy, yy float64 }

func (f *fit) add(x, y float64) {
	f.n++
	f.x += x
	f.y += y
	f.xx += x * x
	f.xy += x * y
	f.yy += y * y
}

// leastPoints is how many points a trend has at least.
const leastPoints = 5

// certainty is by how many standard errors a slope must exceed zero to count as a trend. With 15
// points, noise alone exceeds 3 once in 200 times.
const certainty = 3

// rise returns by how much the figures grow per second, or 0 if they do not, or if that may be
// noise.
func (f *fit) rise() float64 {
	slope, spread := f.slope(), f.spread()
	rest := max(f.yy-f.y*f.y/f.n-slope*slope*spread, 0)
	standardError := math.Sqrt(rest / (f.n - 2) / spread)
	if !(slope > certainty*standardError) {
		return 0
	}
	return slope
}

// slope returns that of the line, or 0 if there are too few points.
func (f *fit) slope() float64 {
	if f.n < leastPoints || f.spread() <= 0 {
		return 0
	}
	return (f.xy - f.x*f.y/f.n) / f.spread()
}

func (f *fit) spread() float64 { return f.xx - f.x*f.x/f.n }

// point are the figures of one sample that decisions need. Those that are unknown or absurd are NaN.
type point struct {
	age                                        float64 // seconds before the newest sample
	instances, ready                           float64
	depth, visible, inWork, delayed            float64
	arrival, service, handling, slots, running float64
	cpu, memory                                float64
}

var unknown = math.NaN()

func known(v float64) bool { return v == v } // NaN is not

// past are the samples of a history from the newest one back. Samples that are not older than the one
// that came after them are left out: they come from a clock that was set back since, or are there twice.
type past struct {
	h     History
	next  int // in h
	n     int // points so far
	first [firstPoints]point
	more  []point
}

// firstPoints are enough for most decisions, and need not be on the heap.
const firstPoints = 96

// at returns the k-th newest sample, from 0, or nil if there are not so many. The result is good until
// the next call.
func (p *past) at(k int) *point {
	for p.n <= k {
		if !p.extend() {
			return nil
		}
	}
	if k < firstPoints {
		return &p.first[k]
	}
	return &p.more[k-firstPoints]
}

func (p *past) extend() bool {
	newest := p.h[len(p.h)-1].At
	last := -1.0
	if p.n > 0 {
		last = p.at(p.n - 1).age
	}
	for ; p.next >= 0; p.next-- {
		age := newest.Sub(p.h[p.next].At).Seconds()
		if age <= last {
			continue
		}
		if p.n < firstPoints {
			p.first[p.n] = pointOf(&p.h[p.next], age)
		} else {
			p.more = append(p.more, pointOf(&p.h[p.next], age))
		}
		p.n++
		p.next--
		return true
	}
	return false
}

func pointOf(s *Sample, age float64) point {
	return point{
		age: age, instances: float64(max(s.Instances, 0)), ready: count(s.Ready),
		depth: count(s.Depth), visible: count(s.Visible), inWork: count(s.InWork), delayed: count(s.Delayed),
		arrival: rate(s.Arrival), service: rate(s.Service), handling: handling(s), slots: slots(s), running: count(s.Running),
		cpu: share(s.CPU), memory: share(s.Memory),
	}
}

// Figures beyond these are absurd, and count as unknown. They also keep sums and products of
// figures finite.
const (
	mostCount    = 1e15
	mostRate     = 1e12 // a second
	mostHandling = 30 * 24 * time.Hour
	leastSlots   = 1e-3
	mostSlots    = 1e6
)

// leastHandling stands for a handling time of zero, in seconds.
const leastHandling = 1e-6

// rate returns a rate, or NaN if it is unknown or absurd. The comparisons are false for NaN.
func rate(o Optional[float64]) float64 {
	if v := o.Or(-1); v >= 0 && v <= mostRate {
		return v
	}
	return unknown
}

// share returns a share, or NaN if it is unknown or absurd.
func share(o Optional[float64]) float64 {
	if v := o.Or(-1); v >= 0 && v <= 1 {
		return v
	}
	return unknown
}

// count returns a count, or NaN if it is unknown or absurd.
func count[T int | int64](o Optional[T]) float64 {
	if v := float64(o.Or(-1)); v >= 0 && v <= mostCount {
		return v
	}
	return unknown
}

// handling returns a handling time in seconds, or NaN if it is unknown or absurd.
func handling(s *Sample) float64 {
	if d := s.Handling.Or(-1); d >= 0 && d <= mostHandling {
		return max(d.Seconds(), leastHandling)
	}
	return unknown
}

// slots returns how many handlers an instance runs at once, or NaN if that is unknown or absurd.
func slots(s *Sample) float64 {
	if v := s.Slots.Or(-1); v >= leastSlots && v <= mostSlots {
		return v
	}
	return unknown
}

// mean is an average of figures, as far as they are known.
type mean struct{ n, sum float64 }

func (m *mean) add(v float64) {
	if known(v) {
		m.n++
		m.sum += v
	}
}

// of returns the average, or NaN if no figure was known.
func (m *mean) of() float64 { return m.sum / m.n }

// ceil is the next integer, as an instance count. What exceeds an integer by no more than the
// error of its computation counts as that integer.
func ceil(v float64) int {
	const most = 1 << 30
	n := math.Ceil(v * (1 - 1e-9))
	if !(n < most) { // NaN too
		return most
	}
	return int(max(n, 0))
}

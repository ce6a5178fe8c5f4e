package replay

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/scaling"
)

// Result is what came of a trace under a rule. Numbers of jobs are fractions, because jobs are an amount here.
type Result struct {
	// Trace and Rule are their names.
	Trace, Rule string

	// Jobs is how many came, Poison how many of them fail at every attempt.
	Jobs, Poison float64

	// Done is how many were handled, Poisoned how many went to the poison queue, and Left how many did neither
	// within the SLA after the end of the trace.
	Done, Poisoned, Left float64

	// Late is how many of those that are not poison ended later than the SLA after they came, or not at all.
	Late float64

	// Worst is the longest time from arrival to end, of those that are not poison; for those that still waited, to the end of the replay.
	Worst time.Duration

	// InstanceHours are paid for, from being asked for to the end.
	InstanceHours float64

	// Changes is how often the number of instances was changed, and Reversals how many of the changes were in the other direction
	// than the one before.
	Changes, Reversals int

	// Requests is how many requests to the queues there were, by instances, by their reports and by who measures, estimated.
	Requests float64

	// Timeline has a point for each change of the number of instances, and about a thousand in between.
	Timeline []Point
}

// LateShare returns the share of jobs that are late, of those that are not poison. 0 if there are none.
func (r *Result) LateShare() float64 {
	if healthy := r.Jobs - r.Poison; healthy > 0 {
		return min(r.Late/healthy, 1)
	}
	return 0
}

// Point is one moment of a replay.
type Point struct {
	// At is how long after the beginning it is.
	At time.Duration

	// Arrival and Service are messages a second, since the point before: those that came, and those taken off the queues.
	Arrival, Service float64

	// Waiting is how many messages are visible.
	Waiting float64

	// Instances is how many there are, those included that start; Ready is how many work.
	Instances, Ready int

	// Why is why the rule has changed the number of instances. Empty if it has not, or does not say.
	Why string
}

// Run replays a trace against a rule, in steps of a second, and then goes on until the last jobs have ended or missed the SLA, which costs
// nothing and is no part of the timeline. It returns an error if the trace is wrong: see [Trace.Check]. It is pure: the same
// arguments give the same result. The package's documentation says what is simulated.
func Run(t Trace, r Rule) (Result, error) {
	if err := t.Check(); err != nil {
		return Result{}, err
	}
	s := newSimulation(&t, r)
	for now := range s.length {
		s.second(now)
	}
	s.runOut()
	return s.result(), nil
}

// What a delivery costs in requests, from docs/performance.md: fetching in batches and deleting, at the default concurrency. A message that goes to
// the poison queue costs one more. An idle instance polls once a second, which is the default of its longest wait. Reading reports costs one
// request for 32 of them.
const (
	requestsPerDelivery = 1.091
	requestsPerPoisoned = 1
	idlePolls           = 1.0
	reportsPerRead      = 32
)

// simulation is one replay. All times are in whole seconds since the beginning.
type simulation struct {
	trace    *Trace
	rule     Rule
	decide   func(scaling.History) scaling.Decision
	interval int
	length   int
	perStep  int // seconds in a step
	queues   float64

	fleet    *fleet
	line     line
	seen     observer
	history  scaling.History
	work     work
	due      ring // retries, by when they become visible
	delayed  float64
	counted  figures
	sum      Result
	lastAt   int // of the newest point
	lastCame float64
	lastOff  float64
}

func newSimulation(t *Trace, r Rule) *simulation {
	random := rand.New(rand.NewPCG(t.Seed, 18))
	s := &simulation{
		trace: t, rule: r, decide: r.Begin(t),
		interval: max(int(r.Interval.Round(time.Second)/time.Second), 1),
		length:   int(t.Length() / time.Second), perStep: int(t.Step / time.Second),
		queues: t.queues(), fleet: &fleet{trace: t, random: random, starting: map[int]int{}, draining: map[int]int{}, ready: t.Initial}, seen: observer{trace: t, random: random},
		work: newWork(t.longest()), due: make(ring, retryDelay(attempts)+2),
	}
	s.sum = Result{Trace: t.Name, Rule: r.Name}
	return s
}

// second simulates the second that begins at now.
func (s *simulation) second(now int) {
	s.fleet.tick(now)
	s.note(now)
	if now%s.interval == 0 {
		s.scale(now)
	}
	s.arrive(now)
	s.begin(now)
	s.end(now)
	s.pay(now)
}

// runOut goes on after the trace for as long as a job that came last has, without arrivals.
func (s *simulation) runOut() {
	ended := s.sum
	changes, reversals := s.fleet.changes, s.fleet.reversals
	last := s.length + int(math.Ceil(s.trace.SLA.Seconds()))
	for now := s.length; now < last && s.depth() > 0; now++ {
		s.second(now)
	}
	s.sum.InstanceHours, s.sum.Requests, s.sum.Timeline = ended.InstanceHours, ended.Requests, ended.Timeline
	s.fleet.changes, s.fleet.reversals = changes, reversals
}

// depth is what is in the queues: visible, in work, and delayed.
func (s *simulation) depth() float64 { return s.line.waiting + s.work.running() + s.delayed }

// step returns the step of a second; after the trace the last one.
func (s *simulation) step(now int) int { return min(now/s.perStep, len(s.trace.Arrivals)-1) }

// coming returns how many messages come in a second, and how many of them are poison.
func (s *simulation) coming(now int) (n, poison float64) {
	if now >= s.length {
		return 0, 0
	}
	step := s.step(now)
	return s.trace.Arrivals[step] / float64(s.perStep), s.trace.poison(step) / float64(s.perStep)
}

// note lets the observer have the figures of this moment.
func (s *simulation) note(now int) {
	s.counted.at, s.counted.ready = now, s.fleet.ready
	s.counted.running, s.counted.delayed = s.work.running(), s.delayed
	s.seen.note(s.counted)
}

// scale lets the rule decide, and makes it so.
func (s *simulation) scale(now int) {
	s.history = append(s.history, s.seen.sample(now, s.fleet.asked(), s.depth(), s.line.age(float64(now))))
	d := s.decide(s.history)
	s.sum.Requests += s.rule.Requests * s.queues
	if s.rule.Beacon > 0 {
		s.sum.Requests += math.Ceil(float64(s.fleet.ready) / reportsPerRead)
	}
	before, ready := s.fleet.asked(), s.fleet.ready
	finish := 0
	if s.work.running() >= 0.5 { // below that only rounding is left
		finish = int(math.Ceil(s.trace.handling(s.step(now))))
	}
	if leave := s.fleet.scale(now, d.Instances, finish); leave > 0 {
		s.work.drain(float64(leave) / float64(ready))
	}
	if s.fleet.asked() != before {
		s.point(now, d.Why)
	}
}

// arrive adds the messages of this second to the line: new ones, and retries that are due.
func (s *simulation) arrive(now int) {
	c := cohort{from: float64(now), to: float64(now + 1)}
	n, p := s.coming(now)
	c.healthy, c.poison[0] = n-p, p
	s.sum.Jobs += n
	s.sum.Poison += p
	retries := s.due.take(now)
	s.delayed = max(s.delayed-retries.total(), 0)
	c.add(&retries)
	s.line.join(c)
}

// begin lets handlers begin: as many as slots are free, or become free within the second, and as the accounts carry.
func (s *simulation) begin(now int) {
	handling := s.trace.handling(s.step(now))
	slots := float64(s.fleet.ready * s.trace.Slots)
	most := s.work.room(now, slots, handling)
	n, _ := s.coming(now)
	most = min(most, (s.trace.accounts()*accountRequests-n)/requestsPerDelivery)
	s.line.serve(float64(now), most, func(part *started) {
		late, longest := part.late(handling, s.trace.SLA.Seconds())
		s.sum.Late += late
		if part.healthy > 0 {
			s.sum.Worst = max(s.sum.Worst, seconds(longest))
		}
		n := part.total()
		s.sum.Requests += n * requestsPerDelivery
		s.work.begin(part, handling)
	})
}

// end lets handlers return whose time has come in this second. Those of poison have failed.
func (s *simulation) end(now int) {
	ended, spent := s.work.end(now)
	s.counted.handled += ended.total()
	s.counted.spent += spent
	s.counted.off += ended.healthy
	s.sum.Done += ended.healthy
	for failed, n := range ended.poison {
		if n == 0 {
			continue
		}
		failed++ // this time too
		if failed == attempts {
			s.counted.off += n
			s.sum.Poisoned += n
			s.sum.Requests += n * requestsPerPoisoned
			continue
		}
		var again batch
		again.poison[failed] = n
		s.due.add(now+1+retryDelay(failed), &again)
		s.delayed += n
	}
}

// pay counts what this second has cost.
func (s *simulation) pay(now int) {
	r := &s.sum
	r.InstanceHours += float64(s.fleet.asked()+s.fleet.leaving) / 3600 // paid for from being asked for to the end
	if slots := float64(s.fleet.ready * s.trace.Slots); slots > 0 {
		idle := max(1-s.work.active/slots, 0)
		r.Requests += float64(s.fleet.ready) * idle * idlePolls
	}
	if s.rule.Beacon > 0 {
		r.Requests += float64(s.fleet.ready) / s.rule.Beacon.Seconds()
	}
	if every := max(s.length/1000, 1); now%every == 0 {
		s.point(now, "")
	}
}

func (s *simulation) point(now int, why string) {
	p := Point{At: time.Duration(now) * time.Second, Waiting: s.line.waiting, Instances: s.fleet.asked(), Ready: s.fleet.ready, Why: why}
	if took := float64(now - s.lastAt); took > 0 {
		p.Arrival, p.Service = (s.sum.Jobs-s.lastCame)/took, (s.counted.off-s.lastOff)/took
		s.lastAt, s.lastCame, s.lastOff = now, s.sum.Jobs, s.counted.off
	} else if n := len(s.sum.Timeline); n > 0 { // in the same second as the one before
		p.Arrival, p.Service = s.sum.Timeline[n-1].Arrival, s.sum.Timeline[n-1].Service
	}
	s.sum.Timeline = append(s.sum.Timeline, p)
}

func (s *simulation) result() Result {
	r := s.sum
	left := s.line.left()
	r.Late += left.healthy
	r.Left = s.depth()
	if left.healthy > 0 {
		r.Worst = max(r.Worst, seconds(s.line.age(float64(s.length)+math.Ceil(s.trace.SLA.Seconds()))))
	}
	r.Changes, r.Reversals = s.fleet.changes, s.fleet.reversals
	return r
}

// begin is when every trace begins, in the time of samples: a Monday at midnight.
var begin = time.Date(2026, time.January, 5, 0, 0, 0, 0, time.UTC)

// reportAge is how old the reports of instances are on average, in seconds, when somebody reads them.
const reportAge = int(beaconInterval / time.Second / 2)

// figures are what instances count, at one time.
type figures struct {
	at      int
	ready   int
	running float64
	delayed float64
	off     float64 // messages taken off the queues since the beginning
	handled float64 // handlers that have returned since the beginning
	spent   float64 // seconds that those took
}

// observer makes samples of what a rule could see: the depth at this moment, the instances' reports as they were a few seconds ago, and rates as
// the difference to its last sample. Readings are off and fail as the trace says.
type observer struct {
	trace  *Trace
	random *rand.Rand
	recent [reportAge + 1]figures
	last   figures // as the last reports had them
	depth  scaling.Optional[float64]
	at     int // when the depth was read
}

func (o *observer) note(f figures) { o.recent[f.at%len(o.recent)] = f }

func (o *observer) off(x float64) float64 {
	if o.trace.Noise == 0 {
		return x
	}
	return x * (1 + o.trace.Noise*(2*o.random.Float64()-1))
}

func (o *observer) fails() bool {
	return o.trace.Missing > 0 && o.random.Float64() < o.trace.Missing
}

// sample returns what is seen now of so many instances, a depth, and the age of the oldest visible message in seconds.
func (o *observer) sample(now, instances int, depth, age float64) scaling.Sample {
	s := scaling.Sample{At: begin.Add(time.Duration(now) * time.Second), Instances: instances}
	var depthNow scaling.Optional[float64]
	if !o.fails() {
		depthNow = scaling.Known(o.off(depth))
		s.Depth = scaling.Known(int64(math.Round(depthNow.Or(0))))
	}
	if !o.fails() {
		s.HeadAge = scaling.Known(seconds(o.off(age)))
	}
	if !o.fails() {
		o.reports(&s, now, depthNow)
	}
	return s
}

// reports adds what instances say, and what follows from it and the depth.
func (o *observer) reports(s *scaling.Sample, now int, depth scaling.Optional[float64]) {
	f, before := o.recent[max(now-reportAge, 0)%len(o.recent)], o.last // as the newest reports have them
	running, delayed := o.off(f.running), o.off(f.delayed)
	s.Ready = scaling.Known(f.ready)
	s.Running = scaling.Known(int(math.Round(running)))
	s.InWork = scaling.Known(int64(math.Round(running)))
	s.Delayed = scaling.Known(int64(math.Round(delayed)))
	if f.ready > 0 {
		s.Slots = scaling.Known(float64(o.trace.Slots))
	}
	if d, known := depth.Get(); known {
		s.Visible = scaling.Known(int64(math.Round(max(d-running-delayed, 0))))
	}
	if n := f.handled - before.handled; n >= 0.5 {
		s.Handling = scaling.Known(seconds(o.off((f.spent - before.spent) / n)))
	}
	if f.at > before.at {
		took := float64(f.at - before.at)
		service := o.off((f.off - before.off) / took)
		s.Service = scaling.Known(service)
		d, known1 := depth.Get()
		earlier, known2 := o.depth.Get()
		if known1 && known2 && now > o.at {
			s.Arrival = scaling.Known(max((d-earlier)/float64(now-o.at)+service, 0))
		}
	}
	o.last = f
	if depth.IsKnown() {
		o.depth, o.at = depth, now
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

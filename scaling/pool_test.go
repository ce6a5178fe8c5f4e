package scaling

import (
	"math"
	"math/rand/v2"
	"time"
)

// pool is a pool of instances in simulated time, in steps of a second: messages come, occupy slots for
// their handling time on average, and go. A policy is asked every Interval.
type pool struct {
	policy   Policy
	arrival  func(second int) float64 // messages a second
	handling func(second int) float64 // seconds
	slots    float64
	start    int                         // seconds from being asked for to working
	interval int                         // seconds between decisions
	most     func(instances int) float64 // messages a second that a dependency lets through; nil means all
	blind    func(second int, s *Sample) // what is not measured, or wrongly; may be nil
	random   *rand.Rand                  // of Poisson arrivals; nil means even ones

	history         History
	asked           []int // when each instance was asked for
	waiting         float64
	arrived, served float64 // since the last sample
	decided         []Decision
	seen            []Sample // for each decision, before blind
}

func (p *pool) run(seconds int) {
	if p.asked == nil {
		p.asked = []int{-1000000}
	}
	for now := range seconds {
		p.second(now)
		if now%p.interval == p.interval-1 {
			p.decide(now)
		}
	}
}

func (p *pool) ready(now int) (n int) {
	for _, at := range p.asked {
		if now-at >= p.start {
			n++
		}
	}
	return n
}

func (p *pool) second(now int) {
	a := p.arrival(now)
	if p.random != nil {
		a = poisson(p.random, a)
	}
	can := float64(p.ready(now)) * p.slots / p.handling(now)
	if p.most != nil {
		can = min(can, p.most(p.ready(now)))
	}
	p.waiting += a
	out := min(p.waiting, can)
	p.waiting -= out
	p.arrived += a
	p.served += out
}

func (p *pool) decide(now int) {
	seconds := float64(p.interval)
	running := min(p.served/seconds*p.handling(now), float64(p.ready(now))*p.slots)
	handling := p.handling(now)
	if p.most != nil && p.waiting >= 1 { // slots wait for the dependency
		running = float64(p.ready(now)) * p.slots
		handling = running / (p.served / seconds)
	}
	s := Sample{
		At: noon.Add(time.Duration(now+1) * time.Second), Instances: len(p.asked), Ready: Known(p.ready(now)),
		Depth: Known(int64(p.waiting + running)), Visible: Known(int64(p.waiting)), InWork: Known(int64(running)), Delayed: Known(int64(0)),
		Arrival: Known(p.arrived / seconds), Service: Known(p.served / seconds),
		Handling: Known(time.Duration(handling * 1e9)), Slots: Known(p.slots), Running: Known(int(running)),
	}
	p.arrived, p.served = 0, 0
	p.seen = append(p.seen, s)
	if p.blind != nil {
		p.blind(now, &s)
	}
	p.history.Add(s)
	d := p.policy.Decide(p.history)
	p.decided = append(p.decided, d)
	for len(p.asked) < d.Instances {
		p.asked = append(p.asked, now)
	}
	p.asked = p.asked[:d.Instances]
}

// poisson returns a random number of that mean.
func poisson(r *rand.Rand, mean float64) float64 {
	if mean > 50 {
		return max(math.Round(mean+math.Sqrt(mean)*r.NormFloat64()), 0)
	}
	n, p := 0.0, r.Float64()
	for limit := math.Exp(-mean); p > limit; n++ {
		p *= r.Float64()
	}
	return n
}

func constant(v float64) func(int) float64 { return func(int) float64 { return v } }

func randomOf(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

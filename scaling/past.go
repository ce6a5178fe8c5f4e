package scaling

import "math"

// point are the figures of one sample that decisions need. Those that are unknown or absurd are NaN.
type point struct {
	age                                        float64 // seconds before the newest sample
	instances, ready                           float64
	depth, visible, inWork, delayed            float64
	arrival, service, handling, slots, running float64
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
	}
}

package agent

import (
	"time"

	"github.com/millrace/millrace/scaling"
)

// reported sets what the instances report. Before the first report nothing is known: perhaps nobody reports. Later, no report
// means that no instance works.
func (p *pool) reported(s *scaling.Sample, r reading) {
	if len(p.controls) == 0 || r.views == nil {
		return
	}
	of := *s
	p.fleet.Measure(&of, r.views...)
	if of.Ready.Or(1) > 0 { // also of a view that is full
		p.heard = true
	}
	if n, known := r.instances.Get(); p.heard || known && n == 0 {
		*s = of
	}
}

// split makes visible, in work and delayed add up to the depth, as far as they are known. What was seen to be visible counts for more
// than what instances report, which is some seconds old.
func split(s *scaling.Sample) {
	depth, known := s.Depth.Get()
	if !known {
		s.InWork, s.Delayed = scaling.Optional[int64]{}, scaling.Optional[int64]{}
		return
	}
	if depth <= 0 {
		none := scaling.Known[int64](0)
		s.Visible, s.InWork, s.Delayed = none, none, none
		return
	}
	visible, seen := s.Visible.Get()
	work, reported := s.InWork.Get()
	if !reported {
		s.Delayed = scaling.Optional[int64]{}
		if seen {
			s.Visible = scaling.Known(min(visible, depth)) // the two were read one after the other
		}
		return
	}
	if seen {
		visible = min(visible, depth)
		work = min(work, depth-visible)
	} else {
		work = min(work, depth)
		visible = depth - work - min(s.Delayed.Or(0), depth-work)
	}
	s.Visible, s.InWork, s.Delayed = scaling.Known(visible), scaling.Known(work), scaling.Known(depth-visible-work)
}

// arrival returns how many messages a second have come between two measurements: what the depth has grown by, and what was
// taken off meanwhile. It is unknown where one of these is, and over a time that is too short or that the clocks do not agree on.
func arrival(before, now scaling.Optional[int64], p passed, service scaling.Optional[float64], shortest time.Duration) (unknown scaling.Optional[float64]) {
	first, knownFirst := before.Get()
	last, knownLast := now.Get()
	ended, knownEnded := service.Get()
	if !knownFirst || !knownLast || !knownEnded || p.steady < shortest || !p.agree() {
		return unknown
	}
	return scaling.Known(max(float64(last-first)/p.steady.Seconds()+ended, 0))
}

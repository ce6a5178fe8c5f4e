package replay

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/scaling"
)

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

// reported returns the figures as the newest reports have them.
func (o *observer) reported(now int) figures {
	return o.recent[max(now-reportAge, 0)%len(o.recent)]
}

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
	f, before := o.reported(now), o.last
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

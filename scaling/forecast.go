package scaling

import (
	"math"
	"time"
)

// Figures of forecasts.
const (
	day           = 24 * time.Hour
	week          = 7 * day
	comparedOver  = day              // so that it has the peaks of a day
	comparedEvery = 30 * time.Minute // so that it does not change from one decision to the next
	leastCompared = 60               // samples
	foreseen      = 2 * time.Minute  // beyond the time of a start, because growth is bounded
	forecastGap   = 2 * time.Minute  // a sample says what came up to this long before it
)

// forecast is what came at the same time a day and a week ago: the greater of both. That is the seasonal
// naive method, see Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 5.2.
type forecast struct {
	used     bool    // it was better lately, and exceeds what the latest figures say
	mistake  float64 // its average error, a second
	reactive float64 // that of the latest figures
}

// foresee raises the arrivals to come to those of the forecast, if that was the better one lately.
func (c *choice) foresee(k int, m *moment) {
	if !c.forecast {
		return
	}
	at := c.past.h[len(c.past.h)-1].At.Add(-seconds(c.past.at(k).age))
	f := 0.0
	for ahead := time.Duration(0); ahead <= foreseen; ahead += time.Minute {
		if v := seasonal(c.past.h, at.Add(seconds(c.start)+ahead)); known(v) {
			f = max(f, v)
		}
	}
	if f <= m.later {
		return
	}
	if q := c.judged(at.Truncate(comparedEvery)); q.better {
		m.forecast = forecast{used: true, mistake: q.mistake, reactive: q.reactive}
		m.later = f
	}
}

func seconds(v float64) time.Duration { return time.Duration(v * float64(time.Second)) }

// seasonal returns the greater of the arrivals a day and a week before a time, or NaN.
func seasonal(h History, at time.Time) float64 {
	a := arrivalAt(h, h.search(at.Add(-day)), at.Add(-day))
	b := arrivalAt(h, h.search(at.Add(-week)), at.Add(-week))
	return greater(a, b)
}

// greater is the greater of two figures, or the one that is known.
func greater(a, b float64) float64 {
	if !known(a) || b > a {
		return b
	}
	return a
}

// arrivalAt returns the arrivals at a time, where i is the first sample that is not before it, or NaN.
func arrivalAt(h History, i int, at time.Time) float64 {
	if i >= len(h) || h[i].At.Sub(at) > forecastGap {
		return unknown
	}
	return rate(h[i].Arrival)
}

// quality is how good the forecast was in the time before a moment.
type quality struct {
	at                time.Time
	better            bool
	mistake, reactive float64
}

// judged compares the forecast with the latest figures, over a day before a time: how far each was from
// what came. The latest figures are those of the time when an instance had to be asked for.
func (c *choice) judged(at time.Time) *quality {
	q := &c.quality
	if q.at.Equal(at) {
		return q
	}
	*q = quality{at: at}
	h := c.past.h
	lag := seconds(c.start + leastAverage/2)
	from, to := h.search(at.Add(-comparedOver)), h.search(at)
	if from >= to {
		return q
	}
	daily, weekly, before := follow(h, from, day), follow(h, from, week), follow(h, from, lag)
	var mistake, reactive mean
	for i := from; i < to; i++ {
		t, actual := h[i].At.UnixNano(), rate(h[i].Arrival)
		f := greater(daily.arrival(t), weekly.arrival(t))
		if l := before.arrival(t); known(actual) && known(f) && known(l) {
			mistake.add(math.Abs(actual - f))
			reactive.add(math.Abs(actual - l))
		}
	}
	q.mistake, q.reactive = mistake.of(), reactive.of()
	q.better = mistake.n >= leastCompared && q.mistake < q.reactive
	return q
}

// cursor finds the arrivals some time before times that grow.
type cursor struct {
	h   History
	i   int
	lag int64 // nanoseconds
}

func follow(h History, i int, lag time.Duration) cursor {
	return cursor{h: h, i: h.search(h[i].At.Add(-lag)), lag: int64(lag)}
}

func (c *cursor) arrival(t int64) float64 {
	t -= c.lag
	for c.i < len(c.h) {
		if at := c.h[c.i].At.UnixNano(); at >= t {
			if at-t > int64(forecastGap) {
				break
			}
			return rate(c.h[c.i].Arrival)
		}
		c.i++
	}
	return unknown
}

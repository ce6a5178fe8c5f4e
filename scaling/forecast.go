package scaling

import "time"

// Figures of forecasts.
const (
	day           = 24 * time.Hour
	week          = 7 * day
	comparedOver  = day              // so that it has the peaks of a day
	comparedEvery = 10 * time.Minute // so that it does not change from one decision to the next
	leastCompared = 60               // samples
	forecastGap   = 2 * time.Minute  // a sample says what came up to this long before it
)

// forecast is what came at the same time a day and a week ago: the greater of both. That is the seasonal
// naive method, see Hyndman and Athanasopoulos, Forecasting: Principles and Practice, 5.2.
type forecast struct {
	arrival  float64 // a second, when a new instance would work; 0 if it is unknown or not used
	used     bool    // it exceeds what the latest figures say
	mistake  float64 // its average error, a second
	reactive float64 // that of the latest figures
}

// foresee raises the arrivals to come to those of the forecast, if that was the better one lately.
func (r *rules) foresee(h History, i int, m *moment) {
	if !r.forecast {
		return
	}
	at := h[i].At
	f, known := seasonal(h, at.Add(time.Duration(r.start*float64(time.Second))))
	if !known || f <= m.later {
		return
	}
	q := r.judged(h, at.Truncate(comparedEvery))
	if !q.better {
		return
	}
	m.forecast = forecast{arrival: f, used: true, mistake: q.mistake, reactive: q.reactive}
	m.later = f
}

// seasonal returns the greater of the arrivals a day and a week before a time.
func seasonal(h History, at time.Time) (float64, bool) {
	a, aKnown := arrivalAt(h, h.search(at.Add(-day)), at.Add(-day))
	b, bKnown := arrivalAt(h, h.search(at.Add(-week)), at.Add(-week))
	switch {
	case !aKnown:
		return b, bKnown
	case !bKnown:
		return a, aKnown
	}
	return max(a, b), true
}

// arrivalAt returns the arrivals at a time, where i is the first sample that is not before it.
func arrivalAt(h History, i int, at time.Time) (float64, bool) {
	if i >= len(h) || h[i].At.Sub(at) > forecastGap {
		return 0, false
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
func (r *rules) judged(h History, at time.Time) *quality {
	q := &r.quality
	if q.at.Equal(at) {
		return q
	}
	*q = quality{at: at}
	lag := time.Duration((r.start + leastAverage/2) * float64(time.Second))
	from, to := h.search(at.Add(-comparedOver)), h.search(at)
	daily, weekly, before := cursor{h: h}, cursor{h: h}, cursor{h: h}
	var mistake, reactive mean
	for i := from; i < to; i++ {
		t := h[i].At
		actual, known := rate(h[i].Arrival)
		f, fKnown := daily.arrival(t.Add(-day))
		if w, wKnown := weekly.arrival(t.Add(-week)); wKnown {
			f, fKnown = max(f, w), true
		}
		l, lKnown := before.arrival(t.Add(-lag))
		if known && fKnown && lKnown {
			mistake.add(distance(actual, f), true)
			reactive.add(distance(actual, l), true)
		}
	}
	q.mistake, _ = mistake.of()
	q.reactive, _ = reactive.of()
	q.better = mistake.n >= leastCompared && q.mistake < q.reactive
	return q
}

// cursor finds the arrivals at times that grow.
type cursor struct {
	h       History
	i       int
	started bool
}

func (c *cursor) arrival(at time.Time) (float64, bool) {
	if !c.started {
		c.i, c.started = c.h.search(at), true
	}
	for c.i < len(c.h) && c.h[c.i].At.Before(at) {
		c.i++
	}
	v, known := arrivalAt(c.h, c.i, at)
	if !known {
		return 0, false
	}
	return v, true
}

func distance(a, b float64) float64 { return max(a-b, b-a) }

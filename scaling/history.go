package scaling

import (
	"math"
	"sort"
	"time"

	"github.com/millrace/millrace/internal/load"
)

// Sample is what was measured at one time of a pool: of instances of one program that take jobs from
// the same queues. A figure that could not be measured is unknown, never zero. One that is absurd,
// such as a negative or infinite rate, counts as unknown. Its JSON form leaves out what is unknown. It
// may be copied.
type Sample struct {
	// At is when it was measured.
	At time.Time `json:"at"`

	// Instances is how many instances there were, those included that were starting: what was last asked
	// for, as the platform has it.
	Instances int `json:"instances"`

	// Ready is how many of them report that they work.
	Ready Optional[int] `json:"ready,omitzero"`

	// Depth is the approximate number of messages in the queues, hidden ones included: the sum of
	// Visible, InWork and Delayed.
	Depth Optional[int64] `json:"depth,omitzero"`

	// Visible is how many of them wait for an instance.
	Visible Optional[int64] `json:"visible,omitzero"`

	// InWork is how many of them instances hold.
	InWork Optional[int64] `json:"in_work,omitzero"`

	// Delayed is how many of them are not due yet, such as retries.
	Delayed Optional[int64] `json:"delayed,omitzero"`

	// HeadAge is how long the oldest visible message has waited; zero if there is none.
	HeadAge Optional[time.Duration] `json:"head_age,omitzero"`

	// Arrival is how many messages a second have come since the last sample.
	Arrival Optional[float64] `json:"arrival,omitzero"`

	// Service is how many messages a second were taken off the queues since the last sample: deleted or
	// moved to the poison queue.
	Service Optional[float64] `json:"service,omitzero"`

	// Handling is how long a message occupies a slot, on average.
	Handling Optional[time.Duration] `json:"handling,omitzero"`

	// Slots is how many handlers one instance runs at once, on average.
	Slots Optional[float64] `json:"slots,omitzero"`

	// Running is how many handlers run in all instances.
	Running Optional[int] `json:"running,omitzero"`

	// CPU is the share of their processor time that the ready instances use, on average, and Memory that of the
	// memory that they may have: from 0 to 1.
	CPU    Optional[float64] `json:"cpu,omitzero"`
	Memory Optional[float64] `json:"memory,omitzero"`
}

// How long a history keeps samples.
const (
	keepAll     = time.Hour          // all of them
	keepMinutes = 8 * 24 * time.Hour // one for each minute
)

// History are samples of one pool, oldest first. The newest is the last one. The zero value is empty.
// [History.Add] keeps it in order and bounds it. It is not safe for concurrent use.
type History []Sample

// Add appends a sample. It changes the array of the history in place, so that copies of the slice
// change too.
//
// Samples that are not older than the new one are dropped: then the clock was set back. Samples that
// are older by more than an hour are merged to one for each minute, which has the averages of Arrival
// and Service, and otherwise the latest figures. Those older by more than 8 days are dropped. So with
// a sample every 10 s there are 11,800 of them, in about 3 MB. A clock that is set forward by days
// costs the history, and one that is set back what came after it; then no instance is removed until
// DownAfter has passed.
func (h *History) Add(s Sample) {
	s.At = s.At.Round(0) // without the monotonic time, which a stored history does not have either
	kept := *h
	for len(kept) > 0 && !kept[len(kept)-1].At.Before(s.At) {
		kept = kept[:len(kept)-1]
	}
	if len(kept) > 0 {
		kept = kept.thinned(kept[len(kept)-1].At.Add(-keepAll), s.At.Add(-keepAll))
		kept = kept[kept.search(s.At.Add(-keepMinutes)):] // append moves the rest when the array ends
	}
	kept = append(kept, s)
	*h = kept
}

// search returns the index of the first sample that is not before a time.
func (h History) search(at time.Time) int {
	return sort.Search(len(h), func(i int) bool { return !h[i].At.Before(at) })
}

// thinned merges samples of the same minute, of those between two times. The ones before have been
// merged.
func (h History) thinned(from, to time.Time) History {
	read, end := max(h.search(from), 1), h.search(to)
	if read >= end {
		return h
	}
	write := read - 1 // of the last one that was kept
	for ; read < end; read++ {
		if sameMinute(h[write].At, h[read].At) {
			var before time.Time
			if write > 0 {
				before = h[write-1].At
			}
			h[write] = merged(before, &h[write], &h[read])
			continue
		}
		write++
		h[write] = h[read]
	}
	return append(h[:write+1], h[end:]...)
}

func sameMinute(a, b time.Time) bool { return a.Truncate(time.Minute).Equal(b.Truncate(time.Minute)) }

// merged returns b with the averages of the rates of a and b, where a is of the time since before.
func merged(before time.Time, a, b *Sample) Sample {
	s := *b
	first := min(a.At.Sub(before), time.Minute).Seconds()
	second := b.At.Sub(a.At).Seconds()
	s.Arrival = averaged(a.Arrival, b.Arrival, first, second)
	s.Service = averaged(a.Service, b.Service, first, second)
	return s
}

// averaged returns the average of two figures with their weights, or the one that is known.
func averaged(a, b Optional[float64], first, second float64) Optional[float64] {
	x, y := rate(a), rate(b)
	if !known(x) {
		return b
	}
	if !known(y) {
		return a
	}
	return Known((x*first + y*second) / (first + second))
}

// Optional is a figure that may be unknown, because nobody reports it or because reading it failed. Get
// returns the figure and whether it is known, Or returns the figure or another one if it is unknown.
// The zero value is unknown. It may be copied. Its JSON form is that of the figure, or null if it is
// unknown, infinite or not a number; a time.Duration has the form that its String method returns, such
// as "1.5s".
type Optional[T any] = load.Optional[T]

// Known returns a figure that is known.
func Known[T any](value T) Optional[T] { return load.Known(value) }

// Figures of forecasts.
const (
	day           = 24 * time.Hour
	week          = 7 * day
	comparedOver  = day              // so that it has the peaks of a day
	comparedEvery = 30 * time.Minute // so that it does not change from one decision to the next
	leastCompared = 60               // samples
	foreseen      = 2 * time.Minute  // beyond the time of a start, because growth may be in steps
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

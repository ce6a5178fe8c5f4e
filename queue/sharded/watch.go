package sharded

import (
	"fmt"
	"time"
)

// Throttling is regular when this part of the requests was refused, in so many observations in a row.
const (
	regularShare = 0.01
	regularTimes = 3
)

// Counts are what a process has counted of the requests to a queue since some beginning. Package meter
// counts them.
type Counts struct {
	Requests  int64 // all of them
	Throttled int64 // those that were refused because the service was busy
	Messages  int64 // that were sent, those that were refused too, but each once however often it was repeated
}

// WatchOptions configure a [Watch]. Nil and the zero value mean the defaults.
type WatchOptions struct {
	// Batch and Limit are those of the Load. Default as there.
	Batch, Limit float64

	// Fleet is how many processes send as much as the one whose counts are observed. Defaults to 1.
	Fleet int
}

// Watch finds out whether a queue is throttled regularly. Now and then is no reason for anything, because
// everything that sends requests waits and repeats them; regularly is the sign that one queue is not
// enough. Make one with [NewWatch]. It is not safe for concurrent use.
type Watch struct {
	load  Load
	fleet float64

	at    time.Time // of the last observation
	last  Counts
	times int     // observations in a row that were throttled
	peak  float64 // the highest rate of these
}

// NewWatch returns a Watch that has observed nothing.
func NewWatch(o *WatchOptions) (*Watch, error) {
	w := &Watch{fleet: 1}
	if o != nil {
		w.load.Batch, w.load.Limit = o.Batch, o.Limit
		if o.Fleet < 0 {
			return nil, fmt.Errorf("watch a queue: Fleet %d is negative", o.Fleet)
		}
		w.fleet = max(1, float64(o.Fleet))
	}
	if err := w.load.check(); err != nil {
		return nil, fmt.Errorf("watch a queue: %w", err)
	}
	return w, nil
}

// Advice is what to do about throttling.
type Advice struct {
	// Rate is how many messages a second the fleet sends, the highest of the last observations. Senders
	// that wait for each message before the next are slowed down by throttling, and would send more.
	Rate float64

	// Throttled is the part of the requests that were refused since the observation before, 0…1.
	Throttled float64

	// Shards is how many queues carry the rate: see Advise. If there are as many already, the throttling
	// has another reason: the limit of the account, a key with most of the messages, a smaller Batch, or
	// requests that were not counted.
	Shards int
}

// String returns the advice in a line for a log.
func (a Advice) String() string {
	return fmt.Sprintf("%.1f %% of the requests are throttled: %.0f messages/s call for %d shards", 100*a.Throttled, a.Rate, a.Shards)
}

// Observe takes the counts at a time, best once a minute. It reports true, and its advice, if the queue is
// throttled regularly: in each of the last three intervals between observations 1 % of the requests or more
// were. Counts that are lower than the last ones, such as those of a new meter, begin anew.
func (w *Watch) Observe(at time.Time, c Counts) (Advice, bool) {
	since, took := c.minus(w.last), at.Sub(w.at)
	first := w.at.IsZero()
	w.at, w.last = at, c
	if first || took <= 0 || since.Requests < 0 || since.Throttled < 0 || since.Messages < 0 {
		w.times, w.peak = 0, 0
		return Advice{}, false
	}
	share := float64(since.Throttled) / float64(max(1, since.Requests))
	if share < regularShare {
		w.times, w.peak = 0, 0
		return Advice{}, false
	}
	w.times++
	w.peak = max(w.peak, w.fleet*float64(since.Messages)/took.Seconds())
	if w.times < regularTimes {
		return Advice{}, false
	}
	load := w.load
	load.Rate = w.peak
	shards, err := Advise(load)
	return Advice{Rate: w.peak, Throttled: share, Shards: shards}, err == nil
}

func (c Counts) minus(d Counts) Counts {
	return Counts{Requests: c.Requests - d.Requests, Throttled: c.Throttled - d.Throttled, Messages: c.Messages - d.Messages}
}

package listener

import (
	"cmp"

	"github.com/millrace/millrace/queue/metered"
)

// RequestsByCause are the requests of a listener by cause. The first group adds up to all requests;
// the second counts some of them again.
type RequestsByCause struct {
	Fetches   int64 // dequeues
	Renewals  int64 // leases renewed
	Saves     int64 // calls of Message.Save
	Starts    int64 // starts of handlers recorded, after deliveries that ended in nothing
	GiveBacks int64 // messages made visible again, now or after a delay
	Deletes   int64 // messages deleted: done, discarded or duplicates
	Poison    int64 // messages moved to the poison queue, in two requests each, or kept hidden
	Depth     int64 // readings of the depth
	Metadata  int64 // metadata read or written
	Creates   int64 // creations of the queue
	Beacons   int64 // reports in the control queue of Options.Beacon
	Others    int64 // requests of the program's own Queue for other causes

	EmptyFetches int64 // dequeues without a message
	Repeated     int64 // sent again because the request before failed
	Throttled    int64 // refused because the service was busy, which is not billed
	Unreached    int64 // the service was not reached, or a token was missing
	Failed       int64 // any other error, but not that the poison queue does not exist yet
}

// Counts returns the requests of the listener and its poison queue by operation, cause and outcome;
// [metered.Counts.Cost] prices them. Before Run all are zero. It sends no request and is safe for
// concurrent use.
func (l *Listener[T]) Counts() metered.Counts {
	if s := l.current(); s != nil {
		return s.meter.Counts()
	}
	return nil
}

func requestsByCause(c metered.Counts) (r RequestsByCause) {
	total := c.Total()
	r.EmptyFetches = c.Cause(metered.CauseFetch).Empty
	r.Repeated, r.Throttled, r.Unreached, r.Failed = total.Repeated, total.Throttled, total.Unreached, total.Failed
	of := map[metered.Cause]*int64{
		metered.CauseFetch: &r.Fetches, metered.CauseRenew: &r.Renewals, metered.CauseSave: &r.Saves, metered.CauseStart: &r.Starts,
		metered.CauseGiveBack: &r.GiveBacks, metered.CauseDelete: &r.Deletes, metered.CausePoison: &r.Poison, metered.CauseDepth: &r.Depth,
		metered.CauseMetadata: &r.Metadata, metered.CauseCreate: &r.Creates, metered.CauseBeacon: &r.Beacons,
	}
	for _, line := range c {
		*cmp.Or(of[line.Cause], &r.Others) += line.Requests
	}
	return r
}

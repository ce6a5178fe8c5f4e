package dispatcher

import (
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// follower chooses the visibility of the next batch from the handling times of
// the last ones: twice their 95th percentile, so that one handler in twenty is
// renewed at half of it, within bounds (V-05). While leases turn out to be too short it
// is longer than that.
type visibilityEstimator struct {
	bounds Visibility

	mu       sync.Mutex
	recent   [256]time.Duration // ring of handling times; guarded by mu
	n        int                // how many were recorded, ever; guarded by mu
	estimate time.Duration      // what the handling times ask for; guarded by mu
	long     int                // how many of the ring are not brief; guarded by mu
	p95      time.Duration      // of the handling times; zero until they are known, or if it is brief; guarded by mu
	floor    time.Duration      // what leases that were too short have raised Min to; guarded by mu
	shortAt  time.Time          // when one last was, or would have been without the floor; guarded by mu
	lates    int64              // settlements that came too late; guarded by mu
}

// calm is how long no lease may have been too short until the floor is halved.
const calmPeriod = 10 * time.Minute

// recompute after this many handling times: sorting the ring costs ten microseconds.
const recompute = 32

// brief is a handling time that is of no account: neither the visibility, which is some
// seconds at least, nor the linger follows it. With brief handlers nothing is sorted, and
// with others sorting costs nothing beside them.
const briefHandling = 5 * defaultLinger

func newVisibilityEstimator(bounds Visibility) *visibilityEstimator {
	return &visibilityEstimator{bounds: bounds, estimate: bounds.First}
}

// affordable bounds how many leases a second are renewed on account of their number: who
// holds many asks for longer ones.
const maxRenewalRate = 500

// next returns the visibility that a dequeue asks for while so many leases are held, in
// whole seconds.
func (f *visibilityEstimator) forDequeue(held int) time.Duration { return f.forRenewal(held, 0) }

// renewal returns the visibility that a renewal asks for when the handler has run for so
// long: what a dequeue asks for, or as long again. Leases of long handlers are so renewed
// ever less often, and still a message whose worker died is back before it has waited for
// as long as its handler had run (or for the visibility, if that is longer).
func (f *visibilityEstimator) forRenewal(held int, ran time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.floor > 0 {
		f.relax(time.Now())
	}
	many := time.Duration(held) * 2 * time.Second / maxRenewalRate // a lease is renewed at half
	return wholeSeconds(min(max(f.estimate, f.floor, many, ran), f.bounds.Max))
}

// relax lowers the floor if it has been calm for long enough. Requires mu.
func (f *visibilityEstimator) relax(now time.Time) {
	for ; f.floor > 0 && now.Sub(f.shortAt) >= calmPeriod; f.shortAt = f.shortAt.Add(calmPeriod) {
		if f.floor /= 2; f.floor <= f.bounds.Min {
			f.floor = 0
		}
	}
}

// record notes how long a handler ran.
func (f *visibilityEstimator) recordHandling(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	oldest := &f.recent[f.n%len(f.recent)]
	f.long += notBrief(d) - notBrief(*oldest)
	*oldest = d
	f.n++
	if f.n%recompute != 0 {
		return
	}
	f.p95 = f.percentile95()
	f.estimate = max(2*f.p95, f.bounds.Min)
}

func notBrief(d time.Duration) int {
	if d < briefHandling {
		return 0
	}
	return 1
}

// percentile95 is the handling time that one in twenty reaches, or zero if that is brief.
// Requires mu.
func (f *visibilityEstimator) percentile95() time.Duration {
	sorted := f.recent // a copy
	times := sorted[:min(f.n, len(sorted))]
	rank := len(times) * 95 / 100
	if f.long < len(times)-rank {
		return 0
	}
	slices.Sort(times)
	return times[rank]
}

// late notes a settlement that failed because the visibility had ended, of a message that
// was fetched with the visibility: whatever the handling times say, it was too short (V-05).
func (f *visibilityEstimator) recordLate(visibility time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lates++
	f.raise(visibility)
}

// short notes a lease of the visibility that was too short for the requests about it.
func (f *visibilityEstimator) recordTooShort(visibility time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.raise(visibility)
}

// answered notes how long the answer took that brought a message. A handler that starts
// with less than half its lease left may well lose it; with less than three quarters it
// would, if the visibility were half as long.
func (f *visibilityEstimator) recordDequeue(took, visibility time.Duration) {
	if took < visibility/4 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if took >= visibility/2 {
		f.raise(visibility)
	} else if f.floor > 0 {
		f.shortAt = time.Now()
	}
}

// raise makes the next visibility at least twice as long as the one that was too short.
// All leases that were asked for with the same one are one reason: eight of them that end
// together double it once. Requires mu.
func (f *visibilityEstimator) raise(visibility time.Duration) {
	now := time.Now()
	f.relax(now)
	f.floor = max(f.floor, min(2*visibility, f.bounds.Max))
	f.shortAt = now
}

// usual returns the handling time that hardly any exceeds, or zero when none is known or
// it is brief.
func (f *visibilityEstimator) handlingTime() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.p95
}

func (f *visibilityEstimator) lateCount() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lates
}

func wholeSeconds(d time.Duration) time.Duration {
	return time.Duration(queue.Seconds(d)) * time.Second
}

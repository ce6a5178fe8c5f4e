package dispatcher

import (
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// visibilityEstimator chooses the visibility of the next batch from recent handling times:
// twice their 95th percentile, so that about one handler in twenty is renewed, within the
// bounds. While leases turn out to be too short it asks for more.
type visibilityEstimator struct {
	bounds Visibility

	mu       sync.Mutex
	recent   [256]time.Duration // ring buffer of handling times; guarded by mu
	n        int                // recorded in total; guarded by mu
	total    time.Duration      // of all handling times; guarded by mu
	estimate time.Duration      // what handling times call for; guarded by mu
	long     int                // entries of the ring that are not brief; guarded by mu
	p95      time.Duration      // 95th percentile of the handling times; zero while unknown or brief; guarded by mu
	floor    time.Duration      // minimum raised by leases that were too short; guarded by mu
	shortAt  time.Time          // when one last was too short, or would have been without the floor; guarded by mu
	neededAt time.Time          // shortAt, when no calm period has moved it; guarded by mu
	lates    int64              // settlements that were too late; guarded by mu
	told     time.Duration      // what begin was last told; guarded by mu
}

// calmPeriod is how long no lease may be too short before the floor is halved.
const calmPeriod = 10 * time.Minute

// recompute is the number of handling times between two sorts of the ring, which take about ten
// microseconds.
const recompute = 32

// briefHandling is a handling time that affects neither the visibility, which is several
// seconds at least, nor the linger. With shorter handlers nothing is sorted, and with longer
// ones sorting costs nothing in comparison.
const briefHandling = 5 * defaultLinger

func newVisibilityEstimator(bounds Visibility) *visibilityEstimator {
	return &visibilityEstimator{bounds: bounds, estimate: bounds.First}
}

// maxRenewalRate is how many leases a second are renewed at most: a worker that holds many asks
// for longer ones.
const maxRenewalRate = 500

// forDequeue returns the visibility for a dequeue while this many leases are held, in whole
// seconds.
func (f *visibilityEstimator) forDequeue(held int) time.Duration { return f.forRenewal(held, 0) }

// forRenewal returns the visibility for a renewal when the handler has run this long: that of a
// dequeue, or the time it has run if that is longer. Leases of long handlers are so renewed
// less and less often, and the message of a worker that died is still delivered again after at
// most as long as its handler had run, or the visibility.
func (f *visibilityEstimator) forRenewal(held int, ran time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.floor > 0 {
		f.relax(time.Now())
	}
	many := time.Duration(held) * 2 * time.Second / maxRenewalRate // leases are renewed at half of it
	return wholeSeconds(min(max(f.estimate, f.floor, many, ran), f.bounds.Max))
}

// relax lowers the floor after calm periods. Requires mu.
func (f *visibilityEstimator) relax(now time.Time) {
	for ; f.floor > 0 && now.Sub(f.shortAt) >= calmPeriod; f.shortAt = f.shortAt.Add(calmPeriod) {
		if f.floor /= 2; f.floor <= f.bounds.Min {
			f.floor = 0
		}
	}
}

// handled returns how many handling times were recorded, and their sum.
func (f *visibilityEstimator) handled() (n int64, total time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(f.n), f.total
}

func (f *visibilityEstimator) recordHandling(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	oldest := &f.recent[f.n%len(f.recent)]
	f.long += notBrief(d) - notBrief(*oldest)
	*oldest = d
	f.n++
	f.total += d
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

// percentile95 returns the handling time that one handler in twenty reaches, or zero if that is
// brief. Requires mu.
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

// recordLate records a settlement that failed because the visibility had passed with which the
// message was fetched: it was too short, whatever handling times say.
func (f *visibilityEstimator) recordLate(visibility time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lates++
	f.raise(visibility)
}

// recordTooShort records a lease whose visibility was too short for its requests.
func (f *visibilityEstimator) recordTooShort(visibility time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.raise(visibility)
}

// recordDequeue records how long the response to a dequeue took. A handler that starts with less
// than half of its lease left may lose it; with less than three quarters it would, if the
// visibility were half as long.
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
		f.neededAt = f.shortAt
	}
}

// raise makes the next visibility at least twice the one that was too short. Leases with the
// same visibility that end together double it once. Requires mu.
func (f *visibilityEstimator) raise(visibility time.Duration) {
	now := time.Now()
	f.relax(now)
	f.floor = max(f.floor, min(2*visibility, f.bounds.Max))
	f.shortAt, f.neededAt = now, now
}

// handlingTime returns the 95th percentile of the handling times, or zero if it is unknown or
// brief.
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

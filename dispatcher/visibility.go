package dispatcher

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// MinVisibility is the shortest visibility that leaves time to renew a lease.
const MinVisibility = 5 * time.Second

// Visibility bounds how long a dequeued message is hidden. The first batches ask for First.
// Once handling times are known, dequeues ask for twice their 95th percentile, within Min…Max,
// and for more while leases turn out to be too short or when thousands are held. Renewals ask
// for as long as the handler has already run, if that is longer. So the message of a worker
// that died is delivered again after at most as long as its handler had run, or the visibility
// it was fetched with. All values are rounded up to whole seconds. If Min equals Max the
// visibility is fixed.
type Visibility struct {
	// First is used until handling times are known. Defaults to 30 s, moved into Min…Max.
	First time.Duration

	// Min is the shortest visibility. Less than 5 s leaves no time to renew and is refused.
	// Defaults to 10 s, or to Max if that is shorter.
	Min time.Duration

	// Max is the longest visibility, at most 7 days. Defaults to 10 min, or to Min if that is
	// longer.
	Max time.Duration
}

// FixedVisibility returns a visibility that does not depend on handling times. Less than 5 s is raised to
// 5 s, because a shorter lease could not be renewed.
func FixedVisibility(d time.Duration) Visibility {
	d = max(d, MinVisibility)
	return Visibility{First: d, Min: d, Max: d}
}

func (v Visibility) withDefaults() (Visibility, error) {
	if v.Min == 0 {
		v.Min = defaultMinVisibility
		if v.Max > 0 {
			v.Min = min(v.Min, v.Max)
		}
	}
	if v.Max == 0 {
		v.Max = max(defaultMaxVisibility, v.Min)
	}
	if v.Min < MinVisibility || v.Max > queue.MaxVisibility || v.Min > v.Max {
		return v, fmt.Errorf("Lease.Visibility: the bounds %v…%v must be in order and within %v…%v", v.Min, v.Max, MinVisibility, queue.MaxVisibility)
	}
	if err := units.Visibility("first visibility", v.First); err != nil {
		return v, err
	}
	if v.First < 0 {
		return v, fmt.Errorf("Lease.Visibility: First %v must not be negative", v.First)
	}
	if v.First == 0 {
		v.First = DefaultVisibility
	}
	v.First = min(max(v.First, v.Min), v.Max)
	return v, nil
}

// visibilityEstimator chooses the visibility of the next batch from recent handling times:
// twice their 95th percentile, so that about one handler in twenty is renewed, within the
// bounds. While leases turn out to be too short it asks for more.
type visibilityEstimator struct {
	bounds Visibility

	mu       sync.Mutex
	recent   [256]time.Duration // ring buffer of handling times; guarded by mu
	n        int                // recorded in total; guarded by mu
	total    time.Duration      // of all handling times; guarded by mu
	estimate time.Duration      // twice the 95th percentile, as last computed; guarded by mu
	long     int                // entries of the ring that are not brief; guarded by mu
	p95      time.Duration      // 95th percentile of the handling times; zero while unknown or brief; guarded by mu
	floor    time.Duration      // minimum raised by leases that were too short; guarded by mu
	shortAt  time.Time          // when one last was too short, or would have been without the floor; guarded by mu
	neededAt time.Time          // shortAt, when no calm period has moved it; guarded by mu
	lates    int64              // settlements that were too late; guarded by mu
	told     time.Duration      // the last argument of begin; guarded by mu
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

// forRenewal returns the visibility for a renewal: as for a dequeue, or as long as the handler has
// run if that is longer. Leases of long handlers are so renewed less and less often, and the
// message of a worker that died is still delivered again after at most as long as its handler had
// run, or the visibility.
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

// recordLate records a settlement that failed because the visibility of the dequeue had passed: it
// was too short, even if handling times are short.
func (f *visibilityEstimator) recordLate(visibility time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lates++
	f.raise(visibility)
}

// recordTooShort records that a visibility was too short for the requests of its lease.
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
	return time.Duration(driver.Seconds(d)) * time.Second
}

// trouble is how long a lease that was too short counts in found. It is shorter than a calm period:
// the minimum that they raise sinks slowly, and long after them would look like a need.
const trouble = calmPeriod / 2

// BeginWith makes the dispatcher begin with a visibility that another worker has found, or a
// person. Within the bounds of Options.Visibility it is the shortest for ten minutes, and is then
// halved every ten minutes in which no lease would have been too short; meanwhile handling times
// become known, and may ask for more. Zero means Options.Visibility.First. A value that is the same
// as the last one changes nothing. A smaller one replaces it immediately.
func (d *Dispatcher) BeginWith(visibility time.Duration) { d.visibility.begin(visibility) }

// FoundVisibility returns the visibility that handling times call for, and leases that were too
// short in the last five minutes, in whole seconds. It is zero until they are known, and when the
// visibility is fixed.
func (d *Dispatcher) FoundVisibility() time.Duration { return d.visibility.found() }

// begin implements [Dispatcher.BeginWith].
func (f *visibilityEstimator) begin(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d == f.told {
		return
	}
	floor := min(d, f.bounds.Max)
	if d > f.told { // a lease here may have needed more
		floor = max(floor, f.floor)
	}
	f.told, f.floor, f.shortAt = d, floor, time.Now()
	if f.n >= recompute {
		return
	}
	if f.estimate = f.bounds.First; d > 0 {
		f.estimate = min(max(d, f.bounds.Min), f.bounds.Max)
	}
}

// found implements [Dispatcher.FoundVisibility].
func (f *visibilityEstimator) found() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bounds.Min == f.bounds.Max {
		return 0
	}
	now := time.Now()
	f.relax(now)
	found := 2 * f.p95
	if now.Sub(f.neededAt) < trouble {
		found = max(found, f.floor)
	}
	return wholeSeconds(min(found, f.bounds.Max))
}

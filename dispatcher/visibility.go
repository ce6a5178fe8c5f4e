package dispatcher

import (
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// follower chooses the visibility of the next batch from the handling times of
// the last ones: twice their 95th percentile, so that one handler in twenty is
// renewed at half of it, within bounds (V-05).
type follower struct {
	bounds Visibility

	mu      sync.Mutex
	recent  [256]time.Duration // ring of handling times; guarded by mu
	n       int                // how many were recorded, ever; guarded by mu
	current time.Duration      // guarded by mu
	long    int                // how many of the ring are not brief; guarded by mu
	p95     time.Duration      // of the handling times; zero until they are known, or if it is brief; guarded by mu
	floor   time.Duration      // what late settlements have raised Min to; guarded by mu
	lates   int64              // settlements that came too late; guarded by mu
}

// recompute after this many handling times: sorting the ring costs ten microseconds.
const recompute = 32

// brief is a handling time that is of no account: neither the visibility, which is some
// seconds at least, nor the linger follows it. With brief handlers nothing is sorted, and
// with others sorting costs nothing beside them.
const brief = 5 * DefaultLinger

func newFollower(bounds Visibility) *follower {
	return &follower{bounds: bounds, current: wholeSeconds(bounds.First)}
}

// next returns the visibility to ask for, in whole seconds.
func (f *follower) next() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

// record notes how long a handler ran.
func (f *follower) record(d time.Duration) {
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
	f.current = wholeSeconds(min(max(2*f.p95, f.bounds.Min, f.floor), f.bounds.Max))
	if f.n%len(f.recent) == 0 {
		f.floor /= 2 // a whole round without a late one: the reason may be gone
	}
}

func notBrief(d time.Duration) int {
	if d < brief {
		return 0
	}
	return 1
}

// percentile95 is the handling time that one in twenty reaches, or zero if that is brief.
// Requires mu.
func (f *follower) percentile95() time.Duration {
	sorted := f.recent // a copy
	times := sorted[:min(f.n, len(sorted))]
	rank := len(times) * 95 / 100
	if f.long < len(times)-rank {
		return 0
	}
	slices.Sort(times)
	return times[rank]
}

// late notes a settlement that failed because the visibility had ended: whatever the
// handling times say, it was too short (V-05). The next is twice as long, and for a
// while none is shorter.
func (f *follower) late() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lates++
	f.floor = min(2*f.current, f.bounds.Max)
	f.current = max(f.current, wholeSeconds(f.floor))
}

// usual returns the handling time that hardly any exceeds, or zero when none is known or
// it is brief.
func (f *follower) usual() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.p95
}

func (f *follower) lateCount() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lates
}

func wholeSeconds(d time.Duration) time.Duration {
	return time.Duration(queue.Seconds(d)) * time.Second
}

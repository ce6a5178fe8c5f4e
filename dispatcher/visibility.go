package dispatcher

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
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

// Fixed returns a visibility that does not depend on handling times. Less than 5 s is raised to
// 5 s, because a shorter lease could not be renewed.
func Fixed(d time.Duration) Visibility {
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
		return v, fmt.Errorf("visibility bounds %v…%v must be in order and within %v…%v", v.Min, v.Max, MinVisibility, queue.MaxVisibility)
	}
	if v.First < 0 {
		return v, fmt.Errorf("first visibility %v must not be negative", v.First)
	}
	if v.First == 0 {
		v.First = DefaultVisibility
	}
	v.First = min(max(v.First, v.Min), v.Max)
	return v, nil
}

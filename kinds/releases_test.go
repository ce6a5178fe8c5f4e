package kinds_test

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
)

// B-19: whatever kinds the releases know that work on one queue, every job of a kind that one of them
// knows is handled by such a worker, every other third fails once and runs exactly twice, and all other
// jobs stay in the queue without an attempt, until a release comes that knows them all.
func TestJobsWaitForAReleaseThatKnowsThem(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep over releases")
	}
	suitetest.Checks(t, 25)
	name := rapid.String().Filter(func(s string) bool { return envelope.Head{Kind: s}.Check() == nil })
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfNDistinct(name, 1, 5, rapid.ID[string]).Draw(rt, "names")
		releases := rapid.SliceOfN(rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, len(names), rapid.ID[string]), 1, 3).Draw(rt, "releases")
		jobs := rapid.SliceOfN(rapid.SampledFrom(names), 1, 20).Draw(rt, "kinds of the jobs")
		known := slices.Concat(releases...)
		want, all, left := map[int][]int{}, map[int][]int{}, 0
		for i, kind := range jobs {
			if all[i] = []int{1}; i%3 == 0 {
				all[i] = []int{1, 2}
			}
			if slices.Contains(known, kind) {
				want[i] = all[i]
			} else {
				left++
			}
		}
		var violations []any
		synctest.Test(t, func(t *testing.T) {
			b := setup(t)
			b.options.Poison.MaxAttempts, b.options.Poison.MaxLost = 2, 1
			b.options.RetryDelay = func(int, error) time.Duration { return time.Second }
			for i, kind := range jobs {
				send(b, kinds.Kind[order]{Name: kind}, order{i})
			}
			var mu sync.Mutex
			attempts := map[int][]int{}
			worker := func(release []string) runner {
				var handled []listener.Kind
				for _, kind := range release {
					handled = append(handled, kinds.Kind[order]{Name: kind}.Handle(func(_ context.Context, m *listener.Message[order]) error {
						mu.Lock()
						defer mu.Unlock()
						i := m.Body.Total
						attempts[i] = append(attempts[i], m.Attempt)
						if jobs[i] != kind {
							violations = append(violations, "a handler of another kind", kind, jobs[i])
						}
						if i%3 == 0 && m.Attempt == 1 {
							return errFails
						}
						return nil
					}, nil))
				}
				return b.kindsOf(handled...)
			}
			run := func(d time.Duration, releases ...[]string) {
				var workers []runner
				for _, release := range releases {
					workers = append(workers, worker(release))
				}
				b.run(d, workers...)
			}
			run(time.Hour, releases...)
			if !reflect.DeepEqual(attempts, want) || b.depth() != int64(left) || len(b.records()) != 0 {
				violations = append(violations, "attempts", attempts, "want", want, "left", b.depth(), left, b.records())
			}
			if run(2*time.Hour, names); !reflect.DeepEqual(attempts, all) || b.depth() != 0 || len(b.records()) != 0 {
				violations = append(violations, "in the end: attempts", attempts, "want", all, "left", b.depth(), b.records())
			}
		})
		if len(violations) > 0 {
			rt.Fatal(violations...)
		}
	})
}

package slots_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
)

var errTooMany = errors.New("429")

// sendGroups sends groups of so many jobs each, numbered from 0.
func (w *limited) sendGroups(groups, items int) {
	w.Helper()
	p := producer.New[job](w.queue, nil)
	for g := range groups {
		jobs := make([]job, items)
		for i := range jobs {
			jobs[i].N = g*items + i
		}
		if _, err := p.SendGroup(w.Context(), jobs, nil); err != nil {
			w.Fatal(err)
		}
	}
}

// Groups whose dependency refuses all for half an hour have not failed, whether
// the handler or Options.Exhausted says that it was exhausted.
func TestExhaustedGroupsKeepTheirAttempts(t *testing.T) {
	for name, c := range map[string]struct {
		options slots.AdaptiveOptions
		refusal error
		each    int
	}{
		"Each":                    {slots.AdaptiveOptions{}, slots.Exhausted(errTooMany), 4},
		"Each, Options.Exhausted": {slots.AdaptiveOptions{Exhausted: func(err error) bool { return err == errTooMany }}, errTooMany, 4}, //nolint:errorlint // a hook that compares
		"plain":                   {slots.AdaptiveOptions{}, slots.Exhausted(errTooMany), 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, begin := must(slots.NewAdaptive(&c.options)), time.Now()
			var refused, done atomic.Int64
			h := func(_ context.Context, m *listener.Message[job]) error {
				if time.Since(begin) < 30*time.Minute {
					refused.Add(1)
					return c.refusal
				}
				if m.Attempt != 1 {
					t.Errorf("%s: attempt: got %d, want 1", name, m.Attempt)
				}
				done.Add(1)
				return nil
			}
			if c.each > 0 {
				h = listener.EachItem(h, c.each)
			}
			w := start(t, "jobs", 0, l, h, nil)
			w.sendGroups(10, 10)
			advance(40 * time.Minute)
			st := w.listener.State()
			t.Logf("%s: %d of 10 groups poisoned, %d refused calls in 30 min", name, st.Outcomes[listener.Poisoned], refused.Load())
			if st.Outcomes[listener.Poisoned] != 0 || st.Outcomes[listener.Retried] != 0 || st.Outcomes[listener.Deleted] != 10 || done.Load() != 100 {
				t.Errorf("%s: got %d poisoned, %d retried, %d succeeded, %d jobs done; want 0, 0, 10, 100",
					name, st.Outcomes[listener.Poisoned], st.Outcomes[listener.Retried], st.Outcomes[listener.Deleted], done.Load())
			}
			w.finish()
			mustBeFree(t, l)
		})
	}
}

// A lone job that is refused for hours never becomes poison, costs a bounded
// number of deliveries, and runs soon after the dependency has recovered, even with one attempt.
func TestALoneExhaustedJobIsNeverPoison(t *testing.T) {
	for name, refusal := range map[string]error{
		"plain":             slots.ErrExhausted,
		"Retry immediately": listener.Retry(0, slots.ErrExhausted),
	} {
		synctest.Test(t, func(t *testing.T) {
			const hours = 6
			l, begin := must(slots.NewAdaptive(nil)), time.Now()
			var calls [hours]int
			var done time.Time
			w := start(t, "jobs", 1, l, func(context.Context, *listener.Message[job]) error {
				if hour := int(time.Since(begin) / time.Hour); hour < hours {
					calls[hour]++
					return refusal
				}
				done = time.Now()
				return nil
			}, func(o *listener.Options[job]) { o.Poison = listener.PoisonPolicy{MaxAttempts: 1} })
			advance(hours*time.Hour + 6*time.Minute)
			st := w.listener.State()
			t.Logf("%s: %d poisoned; calls by hour: %v; %d deliveries, %d requests that give them back, %d in all with idle polls",
				name, st.Outcomes[listener.Poisoned], calls, st.Received, st.Outcomes[listener.Snoozed], st.Requests)
			if st.Outcomes[listener.Poisoned] != 0 || st.Outcomes[listener.Deleted] != 1 {
				t.Fatalf("%s: got %d poisoned and %d succeeded, want 0 and 1", name, st.Outcomes[listener.Poisoned], st.Outcomes[listener.Deleted])
			}
			if after := done.Sub(begin) - hours*time.Hour; after > 5*time.Minute+5*time.Second {
				t.Errorf("%s: it ran %v after the recovery, want at most 5 min", name, after)
			}
			for hour, n := range calls {
				if most := 15 + 15*(1-min(hour, 1)); n < 11 || n > most {
					t.Errorf("%s: hour %d: got %d calls, want 11 to %d", name, hour, n, most)
				}
			}
			w.finish()
			mustBeFree(t, l)
		})
	}
}

// A result that other code asks for in place of that of the group counts for all its items, whether
// it is inside of the limit or outside.
func TestAResultInPlaceOfAGroupStands(t *testing.T) {
	poisons := func(err error) error {
		if err != nil {
			return listener.Poison(err)
		}
		return nil
	}
	for name, inside := range map[string]bool{"middleware inside": true, "an interceptor outside": false} {
		synctest.Test(t, func(t *testing.T) {
			l := must(slots.NewAdaptive(nil))
			each := listener.EachItem(func(context.Context, *listener.Message[job]) error { return slots.Exhausted(errTooMany) }, 2)
			h := func(ctx context.Context, m *listener.Message[job]) error {
				if inside {
					return poisons(each(ctx, m))
				}
				return each(ctx, m)
			}
			w := start(t, "jobs", 0, l, h, func(o *listener.Options[job]) {
				if !inside {
					outside := func(ctx context.Context, _ listener.Delivery, next func(context.Context) error) error {
						return poisons(next(ctx))
					}
					o.Interceptors = []listener.Interceptor{outside, l.Intercept}
				}
			})
			w.sendGroups(1, 3)
			advance(time.Minute)
			if st := w.listener.State(); st.Outcomes[listener.Poisoned] != 1 || st.Outcomes[listener.Snoozed] != 0 {
				t.Errorf("%s: got %d poisoned and %d snoozed, want 1 and 0", name, st.Outcomes[listener.Poisoned], st.Outcomes[listener.Snoozed])
			}
			w.finish()
		})
	}
}

// Of a group with a job that fails and one that is refused only the failures count: the group
// becomes poison for the failed job alone, after the other one has succeeded.
func TestOfAGroupOnlyFailuresCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, begin := must(slots.NewAdaptive(nil)), time.Now()
		var failed, done int
		var poison error
		h := func(_ context.Context, m *listener.Message[job]) error {
			switch {
			case m.Item == 2:
				failed++
				return errors.New("bad address")
			case time.Since(begin) < 30*time.Minute:
				return slots.Exhausted(errTooMany)
			}
			done++
			return nil
		}
		w := start(t, "jobs", 0, l, listener.EachItem(h, 1), func(o *listener.Options[job]) {
			o.Poison = listener.PoisonPolicy{MaxAttempts: 2}
			o.Observer.Poisoned = func(_ listener.Delivery, _ listener.PoisonReason, err error) { poison = err }
		})
		w.sendGroups(1, 3)
		advance(29 * time.Minute)
		if st := w.listener.State(); st.Outcomes[listener.Poisoned] != 0 || failed != 2 {
			t.Errorf("while two of three jobs are refused: got %d poisoned and %d failures, want 0 and 2", st.Outcomes[listener.Poisoned], failed)
		}
		advance(10 * time.Minute)
		if st := w.listener.State(); st.Outcomes[listener.Poisoned] != 1 || failed != 2 || done != 2 {
			t.Errorf("at the end: got %d poisoned, %d failures, %d done; want 1, 2, 2", st.Outcomes[listener.Poisoned], failed, done)
		}
		if text := fmt.Sprint(poison); !strings.Contains(text, "bad address") || strings.Contains(text, "429") {
			t.Errorf("the error of the poison: got %q, want that of the job that failed", text)
		}
		w.finish()
	})
}

package dispatcher

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestResultOfAHandlersError(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		err  error
		want Result
	}{
		"success":                        {nil, Result{Outcome: Deleted}},
		"a plain error":                  {broken, Result{Outcome: Retried, Err: broken}},
		"a retry":                        {Retry(time.Second, broken), Result{Outcome: Retried, Explicit: true, Delay: time.Second, Err: broken}},
		"a snooze":                       {Snooze(time.Minute), Result{Outcome: Snoozed, Explicit: true, Delay: time.Minute}},
		"postponed":                      {NotRun(time.Minute, broken), Result{Outcome: Snoozed, Explicit: true, Delay: time.Minute, Err: broken}},
		"poison":                         {Poison(broken), Result{Outcome: Poisoned, Explicit: true, Err: broken}},
		"a discard":                      {Discard(broken), Result{Outcome: Discarded, Explicit: true, Err: broken}},
		"a wrapped snooze":               {fmt.Errorf("not yet: %w", Snooze(time.Minute)), Result{Outcome: Snoozed, Explicit: true, Delay: time.Minute}},
		"a failure joined with a snooze": {errors.Join(Snooze(time.Minute), broken), Result{Outcome: Retried}},
		"a discard joined with a snooze": {errors.Join(Discard(nil), Snooze(time.Minute)), Result{Outcome: Snoozed, Explicit: true, Delay: time.Minute}},
		"poison joined with a failure":   {errors.Join(broken, Poison(broken)), Result{Outcome: Poisoned, Explicit: true, Err: broken}},
		"two retries":                    {errors.Join(Retry(time.Second, broken), Retry(time.Minute, broken)), Result{Outcome: Retried, Explicit: true, Delay: time.Second, Err: broken}},
		"a failure joined with a retry":  {errors.Join(broken, Retry(time.Second, broken)), Result{Outcome: Retried}},
		"a retry that wraps poison":      {Retry(time.Second, Poison(broken)), Result{Outcome: Retried, Explicit: true, Delay: time.Second, Err: Poison(broken)}},
		"several wrapped at once":        {fmt.Errorf("%w: %w", broken, Discard(nil)), Result{Outcome: Retried}},
		"a join of joins": {
			errors.Join(errors.Join(Discard(nil)), fmt.Errorf("so: %w", errors.Join(Snooze(time.Hour), Discard(nil)))),
			Result{Outcome: Snoozed, Explicit: true, Delay: time.Hour},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ResultOf(test.err)
			if test.want.Outcome == Retried && !test.want.Explicit {
				test.want.Err = test.err
			}
			if got.Outcome != test.want.Outcome || got.Explicit != test.want.Explicit || got.Delay != test.want.Delay {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
			if fmt.Sprint(got.Err) != fmt.Sprint(test.want.Err) {
				t.Errorf("Err: got %v, want %v", got.Err, test.want.Err)
			}
		})
	}
}

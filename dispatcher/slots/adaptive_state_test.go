package slots

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher"
)

// Every change says in a sentence what it was and why.
func TestTheStateSaysWhy(t *testing.T) {
	ended := func(said verdict, err error) func(*Adaptive) {
		return func(l *Adaptive) { l.end(l.begin(), &dispatcher.Delivery{ID: "m"}, said, err) }
	}
	for want, c := range map[string]struct {
		options AdaptiveOptions
		do      func(*Adaptive)
	}{
		"at most 16 handlers, 0 run; 16 since the start":                                                         {AdaptiveOptions{}, func(*Adaptive) {}},
		"at most 2 handlers, 0 run; 1 → 2: handlers succeeded while the limit was used":                          {AdaptiveOptions{Start: 1}, ended(coped, nil)},
		"at most 14 handlers, 0 run; 16 → 14: the dependency is exhausted: 429":                                  {AdaptiveOptions{}, ended(exhausted, Exhausted(errors.New("429")))},
		"at most 14 handlers, 0 run; 16 → 14: a handler took longer than its time-out":                           {AdaptiveOptions{}, ended(timedOut, context.DeadlineExceeded)},
		"at most 1 handlers, 0 run; 1, the lowest, and none starts for ":                                         {AdaptiveOptions{Start: 1}, ended(exhausted, ErrExhausted)},
		"at most 14 handlers, 0 run; 16 → 14: " + strings.Repeat("x", 200) + "…":                                 {AdaptiveOptions{}, ended(exhausted, errors.New(strings.Repeat("x", 300)))},
		"at most 3 handlers, 4 run; 4 → 3: 900 MiB of 1024 MiB memory are in use, 88 %, and at most 80 % may be": {AdaptiveOptions{Start: 4, Memory: fixedMemory(900, 1024)}, func(l *Adaptive) { beginSome(l, 4) }},
		"at most 4 handlers, 4 run; 4 since the start":                                                           {AdaptiveOptions{Start: 4, Memory: fixedMemory(800, 1024)}, func(l *Adaptive) { beginSome(l, 4) }},
	} {
		l := must(NewAdaptive(&c.options))
		c.do(l)
		if got := l.State().String(); !strings.HasPrefix(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

func fixedMemory(used, limit int64) func() (Memory, error) {
	return func() (Memory, error) { return Memory{used << 20, limit << 20}, nil }
}

// beginSome begins handlers, and lets the memory be looked at with all of them.
func beginSome(l *Adaptive, n int) {
	read := l.options.Memory
	l.options.Memory = nil
	for range n {
		l.begin()
	}
	l.options.Memory = read
	l.lookAtMemory()
}

// A burst of failures of one moment counts once: only a handler that began after the last cut cuts again.
func TestABurstOfFailuresCountsOnce(t *testing.T) {
	l := must(NewAdaptive(&AdaptiveOptions{Max: 100, Start: 100}))
	var calls []call
	for range 100 {
		calls = append(calls, l.begin())
	}
	for _, c := range calls {
		l.end(c, &dispatcher.Delivery{}, exhausted, ErrExhausted)
	}
	if got := l.State().Limit; got != 90 {
		t.Errorf("after 100 failures of handlers that began together: got %d, want 90", got)
	}
	l.end(l.begin(), &dispatcher.Delivery{}, timedOut, ErrExhausted)
	if got := l.State().Limit; got != 81 {
		t.Errorf("after one that began later: got %d, want 81", got)
	}
}

// The limit grows by one for a limit's worth of successes, and only of those while half of it or more is used.
func TestTheLimitGrowsWhileItIsUsed(t *testing.T) {
	l := must(NewAdaptive(&AdaptiveOptions{Max: 100, Start: 10}))
	succeed := func(n, running int) {
		var calls []call
		for range running {
			calls = append(calls, l.begin())
		}
		for range n {
			l.end(l.begin(), &dispatcher.Delivery{}, coped, nil)
		}
		for _, c := range calls {
			l.end(c, &dispatcher.Delivery{}, silent, nil)
		}
	}
	succeed(50, 0)
	if got := l.State().Limit; got != 10 {
		t.Fatalf("one handler at a time: got %d, want 10", got)
	}
	succeed(4, 9)
	if got := l.State().Limit; got != 14 {
		t.Fatalf("before the first failure: got %d after 4 successes, want 14", got)
	}
	l.end(l.begin(), &dispatcher.Delivery{}, timedOut, nil) // 12
	succeed(11, 9)
	if got := l.State().Limit; got != 12 {
		t.Fatalf("after a failure: got %d after 11 successes, want 12", got)
	}
	succeed(1, 9)
	if got := l.State().Limit; got != 13 {
		t.Fatalf("after a failure: got %d after 12 successes, want 13", got)
	}
}

// What results say about the dependency.
func TestVerdicts(t *testing.T) {
	timeout, cancelTimeout := context.WithTimeoutCause(t.Context(), 0, dispatcher.ErrTimeout)
	defer cancelTimeout()
	stopped, stop := context.WithCancelCause(t.Context())
	stop(dispatcher.ErrStopping)
	l := must(NewAdaptive(&AdaptiveOptions{Exhausted: func(err error) bool { return err.Error() == "busy" }}))
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want verdict
	}{
		"success":                          {t.Context(), nil, coped},
		"success after the time-out":       {timeout, nil, coped},
		"failure":                          {t.Context(), errors.New("no such file"), silent},
		"exhausted":                        {t.Context(), fmt.Errorf("call: %w", Exhausted(errors.New("429"))), exhausted},
		"exhausted by nothing":             {t.Context(), Exhausted(nil), exhausted},
		"exhausted by the option":          {t.Context(), errors.New("busy"), exhausted},
		"exhausted in a retry":             {t.Context(), dispatcher.Retry(time.Second, ErrExhausted), exhausted},
		"rejected":                         {t.Context(), dispatcher.Poison(errors.New("bad")), coped},
		"discarded":                        {t.Context(), dispatcher.Discard(errors.New("old")), coped},
		"snoozed":                          {t.Context(), dispatcher.Snooze(time.Second), silent},
		"the handler's time-out":           {timeout, errors.New("canceled"), timedOut},
		"a deadline of the handler's own":  {t.Context(), context.DeadlineExceeded, timedOut},
		"interrupted by the stop":          {stopped, context.Canceled, silent},
		"exhausted during the stop":        {stopped, ErrExhausted, exhausted},
		"a deadline within an interrupted": {stopped, context.DeadlineExceeded, silent},
	} {
		if got := l.judge(c.ctx, c.err); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	l.options.Exhausted = func(error) bool { panic("a mistake") }
	if got, st := l.judge(t.Context(), errors.New("busy")), l.State(); got != silent || st.Err == nil || !strings.Contains(st.Err.Error(), "a mistake") {
		t.Errorf("with an option that panics: got %v and the error %v, want silent and the panic", got, st.Err)
	}
}

// A reading that fails is unknown, not zero and not the one before: nothing changes by it.
func TestMemoryThatCannotBeReadIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := true
		l := must(NewAdaptive(&AdaptiveOptions{Start: 10, Memory: func() (Memory, error) {
			if fails {
				return Memory{Used: 99, Limit: 100}, errors.New("no such file")
			}
			return Memory{Used: 99, Limit: 100}, nil
		}}))
		for range 5 {
			l.begin()
		}
		if st := l.State(); st.Limit != 10 || st.Memory != (Memory{}) || st.Err == nil {
			t.Errorf("got %+v, want the limit 10, no memory and an error", st)
		}
		fails = false
		l.begin()
		if st := l.State(); st.Memory != (Memory{}) {
			t.Errorf("read again at once: got %+v", st.Memory)
		}
		time.Sleep(memoryInterval)
		l.begin()
		if st := l.State(); st.Limit != 5 || st.Memory.Used != 99 {
			t.Errorf("got %+v, want the limit 5 for the 7 handlers that run", st)
		}
	})
	if r := (reading{Memory: Memory{Used: 99}}); r.isHigh() {
		t.Error("memory without a limit is high")
	}
}

// Each kind is compared with itself: a queue on which long jobs follow short ones is no overload.
func TestKindsAreComparedWithThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(NewAdaptive(&AdaptiveOptions{Max: 64, Start: 10, Gradient: true}))
		round := func(kind string, takes time.Duration, n int) {
			var calls []call
			for range n {
				calls = append(calls, l.begin())
			}
			time.Sleep(takes)
			for _, c := range calls {
				l.end(c, &dispatcher.Delivery{Kind: kind}, coped, nil)
			}
		}
		for n := range 400 {
			if (n/20)%2 == 0 {
				round("short", 100*time.Millisecond, l.limit())
			} else {
				round("long", 10*time.Second, l.limit())
			}
		}
		if got := l.rule.exact; !(got >= 30) && !l.gradient.probing { // it may not be a number
			t.Errorf("got %v, want a limit that has grown: %v", got, l.State())
		}
	})
}

// Half the limit is tried after the first window, and then in every thirtieth. Handlers that take no
// time are no sign of overload.
func TestTheGradientProbesInEveryThirtiethWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(NewAdaptive(&AdaptiveOptions{Max: 64, Start: 10, Gradient: true}))
		var probes []int
		for windows, n := 0, 0; len(probes) < 3 && n < 10000; n++ {
			was := l.gradient.probing
			l.end(l.begin(), &dispatcher.Delivery{}, coped, nil)
			if l.gradient.samples == 0 {
				windows++
			}
			if !was && l.gradient.probing {
				probes = append(probes, windows)
			}
		}
		if want := []int{1, 1 + probeEvery, 1 + 2*probeEvery}; !slices.Equal(probes, want) || l.gradient.resume != 10 {
			t.Errorf("probed after %v windows at the limit %v, want %v and 10", probes, l.gradient.resume, want)
		}
	})
}

// After too much memory was in use the limit does not grow for a minute: the next peak would be higher.
func TestTheLimitGrowsOnlyAfterAMinuteOfRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used := int64(90)
		l := must(NewAdaptive(&AdaptiveOptions{Start: 4, Memory: func() (Memory, error) { return Memory{Used: used, Limit: 100}, nil }}))
		calls := []call{l.begin(), l.begin(), l.begin()}
		used = 50
		succeed := func() {
			for range 8 {
				l.end(l.begin(), &dispatcher.Delivery{}, coped, nil)
			}
		}
		time.Sleep(calm / 2)
		before := l.State().Limit
		succeed()
		if got := l.State().Limit; got > before {
			t.Errorf("half a minute after: got %d, want no more than %d", got, before)
		}
		time.Sleep(calm)
		succeed()
		if got := l.State().Limit; got <= before {
			t.Errorf("more than a minute after: got %d, want more than %d", got, before)
		}
		for _, c := range calls {
			l.end(c, &dispatcher.Delivery{}, silent, nil)
		}
	})
}

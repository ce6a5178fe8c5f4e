package keyed

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The lines of free keys are bounded: those that have passed go first, and a key of any length is not kept.
func TestTheLinesOfFreeKeysAreBounded(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		l := make(lines)
		begin := time.Now()
		put := func(key string, end time.Duration) {
			l.put(key, &turns{lineEnd: begin.Add(end), typical: time.Second}, time.Now())
		}
		put("nobody", 0)
		put(strings.Repeat("x", maxLineKey+1), time.Hour)
		if len(l) != 0 {
			t.Errorf("got %d lines, want 0: of one in which nobody is, and one of a long key", len(l))
		}
		for i := range maxLines {
			put(strconv.Itoa(i), time.Minute+time.Duration(i%2)*time.Hour)
		}
		time.Sleep(2 * time.Minute)
		put("new", time.Hour)
		if len(l) != maxLines/2+1 {
			t.Errorf("got %d lines, want %d: those that have not passed", len(l), maxLines/2+1)
		}
		for i := range 3 * maxLines {
			put("more "+strconv.Itoa(i), time.Hour)
		}
		last := "more " + strconv.Itoa(3*maxLines-1)
		if _, found := l[last]; len(l) != maxLines || !found {
			t.Errorf("got %d lines, the last one among them: %v; want %d and true", len(l), found, maxLines)
		}
		if got := l.take(last, time.Hour); got.typical != time.Second || !got.lineEnd.Equal(begin.Add(time.Hour)) {
			t.Errorf("got %+v, want the line as it was", got)
		}
		if got := l.take(last, time.Hour); got.typical != time.Hour || !got.lineEnd.IsZero() || len(l) != maxLines-1 {
			t.Errorf("taken again: got %+v and %d lines, want none", got, len(l))
		}
	})
}

// A key with a flood has its line while it is free for a moment.
func TestTheLineOutlivesTheTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewTurns(5*time.Second, 10*time.Minute)
		var since time.Time
		acquire := func(want time.Duration) {
			t.Helper()
			began, delay := k.Acquire(t.Context(), "a", Terms{Places: 1, Postponable: true}) // nobody may wait
			if delay != want {
				t.Errorf("got after %v, want after %v", delay, want)
			}
			if delay == 0 {
				since = began
			}
		}
		acquire(0)
		time.Sleep(10 * time.Second)
		k.Release("a", since)
		acquire(0)
		acquire(10 * time.Second)
		acquire(20 * time.Second)
		time.Sleep(10 * time.Second)
		k.Release("a", since)
		acquire(0)
		acquire(20 * time.Second)
		acquire(30 * time.Second)
		for range 100 {
			_, _ = k.Acquire(t.Context(), "a", Terms{Places: 1, Postponable: true})
		}
		acquire(10 * time.Minute)
		k.Release("a", since)
	})
}

// With several places the next turn comes when the first of them is expected to be free, and turns go as many
// times as fast.
func TestTurnsOfSeveralPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewTurns(time.Hour, 10*time.Minute)
		of := Terms{Places: 2, Postponable: true, MayWait: 2, MayWaitHere: 2}
		first, _ := k.Acquire(t.Context(), "a", of)
		time.Sleep(100 * time.Second) // which is typical from now on
		k.Release("a", first)
		first, _ = k.Acquire(t.Context(), "a", of)
		time.Sleep(60 * time.Second)
		second, _ := k.Acquire(t.Context(), "a", of)
		time.Sleep(20 * time.Second)
		got := make(chan time.Time, 2)
		for range 2 {
			go func() {
				since, _ := k.Acquire(t.Context(), "a", of)
				got <- since
			}()
			synctest.Wait()
		}
		// The first ends in 20 s, the second in 80 s; two that wait take 50 s each.
		if _, delay := k.Acquire(t.Context(), "a", of); delay != 120*time.Second {
			t.Errorf("got a turn after %v, want after 120 s", delay)
		}
		k.Release("a", second)
		if s := k.State(); s.Longest != 80*time.Second || s.Waiting != 1 {
			t.Errorf("after the second: got %+v, want the first one since 80 s and 1 waiting", s)
		}
		k.Release("a", first)
		k.Release("a", <-got)
		k.Release("a", <-got)
		if s := k.State(); s.Held != 0 || s.Waiting != 0 {
			t.Errorf("at the end: got %+v, want none held", s)
		}
	})
}

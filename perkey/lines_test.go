package perkey

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
		if got := l.take(last, time.Hour, time.Now()); got.typical != time.Second || !got.lineEnd.Equal(begin.Add(time.Hour)) {
			t.Errorf("got %+v, want the line as it was", got)
		}
		if got := l.take(last, time.Hour, time.Now()); got.typical != time.Hour || !got.lineEnd.IsZero() || len(l) != maxLines-1 {
			t.Errorf("taken again: got %+v and %d lines, want none", got, len(l))
		}
	})
}

// A key with a flood has its line while it is free for a moment.
func TestTheLineOutlivesTheTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := New(nil)
		if err != nil {
			t.Fatal(err)
		}
		of := terms{postponable: true, slots: 2} // where nobody waits
		acquire := func(want time.Duration) {
			t.Helper()
			if delay := k.acquire(t.Context(), "a", of); delay != want {
				t.Errorf("got after %v, want after %v", delay, want)
			}
		}
		acquire(0)
		time.Sleep(10 * time.Second)
		k.release("a")
		acquire(0)
		acquire(10 * time.Second)
		acquire(20 * time.Second)
		time.Sleep(10 * time.Second)
		k.release("a")
		acquire(0)
		acquire(20 * time.Second)
		acquire(30 * time.Second)
		for range 100 {
			_ = k.acquire(t.Context(), "a", of)
		}
		acquire(10 * time.Minute)
		k.release("a")
	})
}

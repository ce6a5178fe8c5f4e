package perkey_test

import (
	"fmt"
	"testing"
	"time"
)

// A flood of one key costs three give-backs for each job at most, and one more for each MaxDelay that it has to wait,
// and the key hardly ever rests while its jobs are hidden.
func TestAFloodOfOneKeyCostsFewRequestsAndNoTime(t *testing.T) {
	if testing.Short() {
		t.Skip("plays hours")
	}
	const n = 300
	for _, takes := range []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second, time.Minute} {
		if takes >= time.Second {
			takes -= time.Millisecond // hidden messages come up at whole seconds: no handler ends at the same instant
		}
		for _, concurrency := range []int{2, 8, 64} {
			t.Run(fmt.Sprintf("%v, %d slots", takes, concurrency), func(t *testing.T) {
				bubble(t, nil, func(b *bundle) {
					b.options.Concurrency = concurrency
					b.flood("busy", n, takes)
					l, stop := b.start(b.limited(b.handle))
					work := n * max(takes, time.Second/time.Duration(concurrency/4+1)) // those that come back run once or so a second
					b.until(n, work*5/4+time.Minute)
					stop()
					b.wantEach(map[string]int{"busy": n})
					b.wantEmpty(l)
					most := 3*n + n*int64(work/2)/int64(10*time.Minute)
					if got := l.State().ByCause; got["giveback"] > most || got["start"] > 0 {
						t.Errorf("got %d given back and %d starts recorded, want at most %d and 0", got["giveback"], got["start"], most)
					}
				})
			})
		}
	}
}

// A job whose key is free, or becomes free within Wait, costs a share of a dequeue and a delete, as ever.
func TestWaitingForAKeyCostsNoRequest(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		b.flood("a", 15, 4900*time.Millisecond/15)
		b.flood("b", 2, 4900*time.Millisecond)
		l, stop := b.start(b.limited(b.handle))
		b.until(17, time.Minute)
		stop()
		if st, got := l.State(), l.State().ByCause; got["fetch"]-st.EmptyPolls != 1 || got["delete"] != 17 || got["giveback"]+got["renew"]+got["start"] != 0 {
			t.Errorf("got the requests %+v, want 1 dequeue with messages, 17 deletes, and nothing for waiting", got)
		}
	})
}

// A job whose turn is further away than Wait does not wait in its slot at all.
func TestAJobWhoseTurnIsFarAwayDoesNotWait(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		l, stop := b.start(b.limited(b.handle))
		b.send("a", 0, 20*time.Second)
		advance(6 * time.Second) // longer than a job waits
		b.send("a", 1, 0)
		advance(time.Second)
		if s := b.keys.State(); s.Waiting != 0 || s.NotRun != 1 {
			t.Errorf("got %+v, want 1 postponed at once", s)
		}
		b.until(2, time.Minute)
		before := b.keys.State().NotRun
		b.send("b", 0, 20*time.Second) // handlers of other keys have taken 20 s: so will this one
		advance(time.Second)
		b.send("b", 1, 0)
		advance(time.Second)
		if s := b.keys.State(); s.Waiting != 0 || s.NotRun != before+1 {
			t.Errorf("got %+v, want the second one postponed at once", s)
		}
		b.until(4, time.Minute)
		stop()
		b.wantEmpty(l)
	})
}

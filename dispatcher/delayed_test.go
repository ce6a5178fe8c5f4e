package dispatcher

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
)

// A message counts until it is due, and no longer than a second or a sixteenth of its delay after that.
func TestADelayedMessageCountsUntilItIsDue(t *testing.T) {
	type step struct{ pause, delay time.Duration }
	type given struct{ due, late time.Time }
	drawn := rapid.Custom(func(t *rapid.T) step {
		delay := time.Duration(rapid.Int64Range(0, int64(queue.MaxVisibility/time.Second)).Draw(t, "delay")) * time.Second
		if rapid.Bool().Draw(t, "short") {
			delay %= 5 * time.Minute
		}
		return step{time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "pause")), delay}
	})
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(drawn, 1, 40).Draw(rt, "steps")
		wrong := "" // a failure must not end the bubble
		synctest.Test(t, func(*testing.T) {
			var d delayed
			var all []given
			for _, one := range steps {
				time.Sleep(one.pause)
				delay := one.delay
				d.add(delay)
				due := time.Now().Add(delay)
				all = append(all, given{due, due.Add(max(time.Second, delay/16+time.Second))})
				least, most, now := int64(0), int64(0), time.Now()
				for _, one := range all {
					if one.due.After(now) {
						least++
					}
					if one.late.After(now) {
						most++
					}
				}
				if got := d.count(); got < least || got > most {
					wrong = fmt.Sprintf("got %d delayed, want %d…%d", got, least, most)
				}
			}
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

// From 32 s on, messages that are due at about the same time share a count.
func TestLongDelaysShareCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for first, want := range map[int]int{30: 2, 33: 1, 61: 1, 65: 1} {
			var d delayed
			d.add(time.Duration(first) * time.Second)
			d.add(time.Duration(first+1) * time.Second)
			if len(d.due) != want {
				t.Errorf("delays of %d and %d s have %d counts, want %d", first, first+1, len(d.due), want)
			}
		}
	})
}

// However many messages wait, the counts are few.
func TestDelayedMessagesTakeBoundedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a million messages")
	}
	synctest.Test(t, func(t *testing.T) {
		var d delayed
		most := 0
		for i := range 300_000 {
			d.add(time.Duration(i*7919%int(queue.MaxVisibility/time.Second)) * time.Second)
			time.Sleep(3 * time.Second)
			most = max(most, len(d.due))
		}
		if most > 16*33+32 {
			t.Errorf("got %d counts, want at most %d", most, 16*33+32)
		}
		if got := d.count(); got < 100_000 || got > 107_000 {
			t.Errorf("got %d delayed, want 100,800, and up to a sixteenth more", got)
		}
		time.Sleep(8 * 24 * time.Hour)
		if got := d.count(); got != 0 || len(d.due) != 0 {
			t.Errorf("all are due: got %d delayed in %d counts, want none", got, len(d.due))
		}
	})
}

package listener

import (
	"slices"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// L-23: the cap is one second unless set.
func TestIdleDefaultsAndBounds(t *testing.T) {
	for _, c := range []struct{ input, want Idle }{
		{Idle{}, Idle{Min: 100 * time.Millisecond, Max: time.Second}},
		{Idle{Max: time.Minute}, Idle{Min: 100 * time.Millisecond, Max: time.Minute}},
		{Idle{Max: 10 * time.Millisecond}, Idle{Min: 10 * time.Millisecond, Max: 10 * time.Millisecond}},
		{Idle{Min: time.Millisecond, Max: time.Millisecond}, Idle{Min: time.Millisecond, Max: time.Millisecond}},
		{Idle{Min: time.Second, Max: time.Second}, Idle{Min: time.Second, Max: time.Second}},
		{Idle{Min: time.Minute}, Idle{Min: time.Minute, Max: time.Minute}},
	} {
		got, err := idleWithDefaults(c.input)
		if err != nil || got.Min != c.want.Min || got.Max != c.want.Max {
			t.Errorf("%+v: got %v…%v, error %v; want %v…%v", c.input, got.Min, got.Max, err, c.want.Min, c.want.Max)
		}
	}
	for _, bad := range []Idle{{Min: -1}, {Max: -1}, {Max: -time.Second}, {Max: 999}, {Min: 999}, {Min: 2 * time.Second, Max: time.Second}} {
		if _, err := idleWithDefaults(bad); err == nil {
			t.Errorf("%v…%v: got no error, want one", bad.Min, bad.Max)
		}
	}
}

// any curve can be used; its results are clamped to Min…Max.
func TestAnyBackOffPolicyCanBeUsed(t *testing.T) {
	var got []time.Duration
	bubble(t, func(b *bundle) {
		tripled := backoff.NewExponentialBackOff(
			backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMultiplier(3), backoff.WithRandomizationFactor(0))
		o := options()
		o.Fetch.Idle = Idle{Min: 200 * time.Millisecond, Max: time.Second, Curve: func(k int) time.Duration {
			if k == 1 {
				tripled.Reset()
			}
			return tripled.NextBackOff()
		}}
		b.run(New(b.queue, nothing, o))
		advance(3 * time.Second)
		sent := b.queue.sent("dequeue")
		for i := range 4 {
			got = append(got, sent[i+1].at.Sub(sent[i].at))
		}
		b.mustFinish()
	})
	if want := []time.Duration{200 * time.Millisecond, 300 * time.Millisecond, 900 * time.Millisecond}; !slices.Equal(got[:3], want) || got[3] < time.Second {
		t.Errorf("got the waits %v, want %v and then a second", got, want)
	}
	idle := Idle{Min: 200 * time.Millisecond, Max: time.Second}
	if got := idleWait(&idle, backoff.Stop); got != time.Second {
		t.Errorf("backoff.Stop: got %v, want the maximum", got)
	}
	if got := idleWait(&idle, -time.Hour); got != time.Second {
		t.Errorf("a negative wait is %v, want the maximum", got)
	}
	if got := idleWait(&idle, time.Hour); got != time.Second {
		t.Errorf("an hour: got %v, want the maximum", got)
	}
}

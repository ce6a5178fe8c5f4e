package listener

import (
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace/millrace/scaling"
)

// L-23: the cap is one second unless set.
func TestIdleDefaultsAndBounds(t *testing.T) {
	for _, c := range []struct{ input, want scaling.Idle }{
		{scaling.Idle{}, scaling.Idle{Min: 100 * time.Millisecond, Max: time.Second}},
		{scaling.Idle{Max: time.Minute}, scaling.Idle{Min: 100 * time.Millisecond, Max: time.Minute}},
		{scaling.Idle{Max: 10 * time.Millisecond}, scaling.Idle{Min: 10 * time.Millisecond, Max: 10 * time.Millisecond}},
		{scaling.Idle{Min: time.Millisecond, Max: time.Millisecond}, scaling.Idle{Min: time.Millisecond, Max: time.Millisecond}},
		{scaling.Idle{Min: time.Second, Max: time.Second}, scaling.Idle{Min: time.Second, Max: time.Second}},
		{scaling.Idle{Min: time.Minute}, scaling.Idle{Min: time.Minute, Max: time.Minute}},
	} {
		got, err := idleWithDefaults(c.input)
		if err != nil || got.Min != c.want.Min || got.Max != c.want.Max {
			t.Errorf("%+v: got %v…%v, error %v; want %v…%v", c.input, got.Min, got.Max, err, c.want.Min, c.want.Max)
		}
	}
	for _, bad := range []scaling.Idle{{Min: -1}, {Max: -1}, {Max: -time.Second}, {Max: 999}, {Min: 999}, {Min: 2 * time.Second, Max: time.Second}} {
		if _, err := idleWithDefaults(bad); err == nil {
			t.Errorf("%v…%v: got no error, want one", bad.Min, bad.Max)
		}
	}
}

// any backoff policy can be used; its results are clamped to Min…Max.
func TestAnyBackOffPolicyCanBeUsed(t *testing.T) {
	idle, err := idleWithDefaults(scaling.Idle{Min: 200 * time.Millisecond, Max: time.Second, New: func() BackOff {
		return backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Millisecond), backoff.WithRandomizationFactor(0))
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got := idleWait(&idle, idle.New().NextBackOff()); got != 200*time.Millisecond {
		t.Errorf("a wait below Min: got %v, want the minimum", got)
	}
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

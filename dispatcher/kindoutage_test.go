package dispatcher

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// In an outage of a kind one message is tried at a time, after pauses that grow, and the others wait as
// long as it has lasted, but no longer than ten minutes.
func TestABreakerLetsOneProbeThroughAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, later, old := errors.New("first"), errors.New("later"), time.Now()
		b := newBreaker(1, 1, "/mail")
		admit := func(lastAttempt bool, least, most time.Duration, want error) {
			t.Helper()
			if wait, cause := b.admit(time.Now(), false, lastAttempt); wait < least || wait > most || !errors.Is(cause, want) {
				t.Fatalf("%v after the outage began: wait %v, because of %v; want %v to %v, %v", time.Since(old), wait, cause, least, most, want)
			}
		}
		for range minFailures {
			admit(false, 0, 0, nil)
			b.failed(1, old, first)
		}
		admit(false, time.Second, time.Second, first)
		time.Sleep(749 * time.Millisecond)
		admit(false, time.Second, time.Second, first)
		time.Sleep(501 * time.Millisecond)
		probe := time.Now()
		admit(false, 0, 0, nil)
		admit(false, 1250*time.Millisecond, 1250*time.Millisecond, first)
		time.Sleep(5 * time.Second)
		b.failed(1, old, later) // began before the outage
		admit(false, 6250*time.Millisecond, 6250*time.Millisecond, later)
		b.failed(1, probe, later)
		admit(false, 6250*time.Millisecond, 6250*time.Millisecond, later)
		time.Sleep(2500 * time.Millisecond)
		admit(false, 0, 0, nil) // the second pause is over
		time.Sleep(time.Minute - 8750*time.Millisecond)
		probe = time.Now()
		admit(false, 0, 0, nil)
		admit(false, time.Minute, time.Minute, later)
		time.Sleep(time.Hour)
		admit(true, 0, 0, nil) // due for longer than all others wait
		admit(false, maxHold, maxHold, later)
		b.unknown(time.Now())
		admit(true, maxHold, maxHold, later) // due for less than that
		time.Sleep(maxHold)
		admit(true, 0, 0, nil)
		b.failed(1, probe, later) // replaced by another
		admit(false, maxHold, maxHold, later)
		b.succeeded()
		admit(false, 0, 0, nil)
		admit(true, 0, 0, nil)
	})
}

// Only the probe of an outage of all kinds is let through whatever the breaker of its kind says.
func TestOnlyAProbeIsTakenForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(1, 1, "")
		before := time.Now()
		for range minFailures {
			b.failed(1, before, nil)
		}
		if b.isProbe(before) {
			t.Error("a delivery from before the outage is taken for a probe")
		}
		time.Sleep(time.Minute)
		b.probe()
		if b.isProbe(before) || !b.isProbe(time.Now()) {
			t.Error("the probe is not told from other deliveries")
		}
		b.succeeded()
		if b.isProbe(time.Now()) {
			t.Error("there is a probe without an outage")
		}
	})
}

// A probe of an outage of all kinds that says nothing, such as one whose message was lost, is followed
// by another at once.
func TestAProbeOfAllKindsThatSaysNothingIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &Kind{name: "mail"}
		d := &Dispatcher{kinds: map[string]*Kind{"mail": k}, breaker: newBreaker(1, 1, "")}
		d.breakKindsApart()
		for range minFailures {
			outages{}.decided(&delivery{opened: opened{dispatcher: d, kind: k}}, decision{outcome: Retried, err: errors.New("no"), health: unhealthy})
		}
		time.Sleep(maxPause)
		d.breaker.probe()
		probe := &delivery{opened: opened{dispatcher: d, kind: k, lease: lease{asked: time.Now()}}}
		if !d.breaker.isProbe(probe.lease.asked) {
			t.Fatal("there is no outage of all kinds")
		}
		outages{}.decided(probe, decision{outcome: Lost})
		if wait := time.Until(d.breaker.until); wait > 0 {
			t.Errorf("the next probe waits for %v", wait)
		}
	})
}

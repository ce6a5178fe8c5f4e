package listener

import (
	"slices"
	"testing"
	"time"
)

// Steps that neither the tests of whole listeners nor the exploration tell apart from their nearest
// faults, because a fault costs no more than a request or a call.
func TestSteps(t *testing.T) {
	const at = time.Hour
	full := event{what: answered, now: at, asked: 2, got: 2}
	again := full
	again.now = at + time.Millisecond
	first := full
	first.first = true
	late := full
	late.now = at + 2*time.Minute
	throttled := event{what: answered, now: at, asked: 2, throttled: true, err: errDown}
	running := state{phase: Running, active: 1, bounds: Loops{Max: 1}, most: 32, batch: 32, busy: true, idle: &Idle{Max: time.Second}}
	change := func(f func(*state)) state { s := running; f(&s); return s }
	for _, c := range []struct {
		name   string
		s      state
		events []event
		do     verb
		want   int // how often
	}{
		{"a long limit on a dequeue that was not owed wakes no other instance",
			change(func(s *state) { s.wakeups, s.ready = true, true }),
			[]event{{what: refused, now: at, long: true}, {what: speaks, now: at}}, callMore, 0},
		{"a long limit on a dequeue that was owed wakes one",
			change(func(s *state) { s.wakeups, s.ready = true, true }),
			[]event{{what: refused, now: at, long: true, owed: true}, {what: speaks, now: at}}, callMore, 1},
		{"a first dequeue for a few shared slots is no reason to read the depth",
			change(func(s *state) { s.shared, s.busy = true, false }), []event{first}, readDepth, 0},
		{"a second one is",
			change(func(s *state) { s.shared, s.busy = true, false }), []event{full}, readDepth, 1},
		{"dequeues that are answered together have the flag read once", running, []event{full, again}, readFlag, 1},
		{"a reading from before does not end the wait of a batch", running,
			[]event{{what: asks, now: at}, late, {what: read, now: late.now, reading: 1, ok: true}}, unpark, 0},
		{"events that come end the wait for them",
			change(func(s *state) { s.wakeups = true }), []event{{what: listens, now: at, on: true}}, unpark, 1},
		{"an instance without room wakes another one once",
			change(func(s *state) { s.wakeups, s.ready = true, true }),
			[]event{{what: failing, now: at}, {what: speaks, now: at}, {what: failing, now: at}, {what: speaks, now: at}}, callMore, 1},
		{"for a message that was left to others another instance is woken when it is due",
			change(func(s *state) { s.wakeups, s.ready = true, true }),
			[]event{{what: timePassed, now: at, left: true}, {what: speaks, now: at}}, callMore, 1},
		{"while the queue is paused none is woken",
			change(func(s *state) { s.wakeups, s.pauses = true, queuePauses }),
			[]event{{what: timePassed, now: at, left: true}, {what: speaks, now: at}}, callMore, 0},
		{"a service that is busy ends the interval of a controller",
			change(func(s *state) { s.controlled, s.control = true, control{loops: 1} }), []event{throttled}, askController, 1},
		{"an interval of a controller takes a while",
			change(func(s *state) { s.controlled, s.control = true, control{loops: 1, began: at} }), slices.Repeat([]event{full}, 100), askController, 0},
	} {
		n := 0
		for _, e := range c.events {
			var actions []action
			c.s, actions = step(c.s, e)
			for _, a := range actions {
				if a.do == c.do {
					n++
				}
			}
		}
		if n != c.want {
			t.Errorf("%s: got %d actions of the kind, want %d", c.name, n, c.want)
		}
	}
}

// What was raised while the open slots were looked at has them looked at again soon.
func TestALookThatWasOvertakenIsRepeatedSoon(t *testing.T) {
	const at = time.Hour
	for raised, want := range map[bool]instant{true: at + raisedWait, false: at + depthInterval} {
		s, _ := step(state{phase: Running, active: 1, looking: true, raised: raised}, event{what: looked, now: at})
		if s.lookAt != want {
			t.Errorf("raised %v: got the next look at %v, want %v", raised, s.lookAt, want)
		}
	}
}

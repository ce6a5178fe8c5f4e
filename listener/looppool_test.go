package listener

import (
	"sync"
	"testing"
	"time"
)

// testOwner takes steps for a test, which carries nothing out.
type testOwner struct {
	mu    sync.Mutex
	state state
}

// ownerWith returns the owner of a listener with wake-ups that runs one loop, or as many as the bounds say.
func ownerWith(bounds Loops) *testOwner {
	o := &testOwner{state: state{phase: Running, wakeups: true, ready: true, bounds: bounds, batch: 32, most: 32, idle: &Idle{Max: time.Second}}}
	o.tell(event{what: subscribed})
	return o
}

// tell takes a step, and returns how many actions of each kind follow.
func (o *testOwner) tell(e event) (counts map[verb]int) {
	if e.now == 0 {
		e.now = time.Second
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var actions []action
	o.state, actions = step(o.state, e)
	counts = map[verb]int{}
	for _, a := range actions {
		counts[a.do] += max(a.n, 1)
	}
	return counts
}

func TestThePeakOfLoopsIsKeptWhenFewerRun(t *testing.T) {
	o := ownerWith(Loops{Min: 1, Max: 8, Pause: -1})
	o.tell(event{what: sized, target: 8})
	for range 7 {
		o.tell(event{what: idled})
	}
	o.tell(event{what: sized, target: 2})
	if s := o.state; s.active != 2 || s.peak != 8 || s.started != 9 {
		t.Errorf("got %d active, peak %d, %d started; want 2, 8, 9", s.active, s.peak, s.started)
	}
}

package listener

import (
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// An interval is measured while the number of loops does not change. It ends with a dequeue, after so many of each loop:
// loops that poll in step bring their messages in lumps, and an interval that ended with the clock would hold one lump more or
// less. It begins when all loops have had time to begin and to find the slots that others had taken.
const (
	settlingRounds = 2
	measuredRounds = 8
	minInterval    = 100 * time.Millisecond
)

// loopControl measures what the loops do and asks Options.LoopController how many should run.
type loopControl struct {
	next scaling.Controller // nil for none; one call at a time, see asking

	mu       sync.Mutex
	loops    int              // for which the interval is; guarded by mu
	settling int              // dequeues that come before the interval; guarded by mu
	began    time.Time        // when the interval began; guarded by mu
	received int              // messages in it; guarded by mu
	interval scaling.Interval // what was counted in it; guarded by mu
	asking   bool             // next is being called; guarded by mu
}

// newController returns the user's controller, guarded, or nil for none. After a panic as many loops run as before.
func newController(g *hook.Guard, f func() scaling.Controller) scaling.Controller {
	if f == nil {
		return nil
	}
	var user scaling.Controller
	made := g.Call("LoopController", func() {
		if user = f(); user == nil {
			panic("it returned nil")
		}
	})
	if !made {
		return nil
	}
	return func(i scaling.Interval) int {
		var loops int
		if g.Call("LoopController: the controller", func() { loops = user(i) }) {
			return loops
		}
		return i.Loops
	}
}

// restart begins an interval for this many loops. Requires mu.
func (c *loopControl) restart(loops int) {
	c.loops, c.settling = loops, settlingRounds*loops
	c.begin()
}

// begin begins to count. Requires mu.
func (c *loopControl) begin() {
	c.began, c.received, c.interval = time.Now(), 0, scaling.Interval{}
}

// answered counts a dequeue of one of so many loops. If that ends the interval it is returned, and the caller calls
// asked when it has asked.
func (c *loopControl) answered(loops, asked, got int, err error) (i scaling.Interval, ends bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.asking:
		return i, false
	case loops != c.loops:
		c.restart(loops)
	case c.settling > 0:
		if c.settling--; c.settling == 0 {
			c.begin()
		}
	default:
		c.count(asked, got, err)
	}
	i = c.interval
	i.Took = time.Since(c.began)
	if i.Busy == 0 && (i.Dequeues < measuredRounds*loops || i.Took < minInterval) {
		return i, false
	}
	i.Intake = scaling.Known(float64(c.received) / max(i.Took, time.Nanosecond).Seconds())
	c.asking = true
	return i, true
}

// count counts a dequeue. Requires mu.
func (c *loopControl) count(asked, got int, err error) {
	i := &c.interval
	i.Dequeues++
	c.received += got
	switch {
	case errors.Is(err, queue.ErrThrottled):
		i.Busy++
	case err != nil:
		i.Failed++
	case got == 0:
		i.Empty++
	case got >= asked:
		i.Full++
	}
}

// asked begins the next interval.
func (c *loopControl) asked(loops int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking = false
	c.restart(loops)
}

// control counts a dequeue, and changes the number of loops if the controller says so.
func (s *session) control(asked, got int, err error) {
	if s.controller.next == nil {
		return
	}
	loops, _, _ := s.pool.counts()
	i, ends := s.controller.answered(loops, asked, got, err)
	if !ends {
		return
	}
	intake := i.Intake
	s.scaler.mu.Lock()
	depth := s.scaler.depth
	s.scaler.mu.Unlock()
	i.Load = s.load(depth)
	i.Loops, i.Intake = loops, intake // those of the interval
	if s.pool.steer(s.controller.next(i), s.startLoop) {
		s.notifyScaled()
	}
	loops, _, _ = s.pool.counts()
	s.controller.asked(loops)
}

// openSlots opens the slots that this many loops fill in one dequeue each. With a controller all that Loops.Max allows
// are open, or it could not tell what more loops bring from what more handlers do. Called under the lock of the pool.
func (s *session) openSlots(loops int) {
	most := s.pool.bounds.Max
	if s.controller.next != nil {
		loops = most
	}
	s.dispatcher.Open(loops*s.options.BatchSize, most*s.options.BatchSize)
}

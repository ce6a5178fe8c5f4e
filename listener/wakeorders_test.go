package listener

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// gates holds a dequeue where the order matters: before the service looks, before its response
// arrives, and before the loop decides what follows.
type gates struct {
	closed                   bool // whether dequeues are held; they are not at first, and not at the end
	execute, respond, decide chan struct{}
}

// orders returns every order of the steps of several actors, each of which keeps its own order.
func orders(actors ...[]string) (all [][]string) {
	done := true
	for i, steps := range actors {
		if len(steps) == 0 {
			continue
		}
		done = false
		rest := slices.Clone(actors)
		rest[i] = steps[1:]
		for _, tail := range orders(rest...) {
			all = append(all, append([]string{steps[0]}, tail...))
		}
	}
	if done {
		return [][]string{nil}
	}
	return all
}

// L-36, X-21: the last loop ends while a message comes, in every order of {the message is in the queue,
// its event arrives} and {the service looks and finds nothing, the response arrives, the loop ends}, of
// which the event may be a call of Wake, one that falls due, a release, or the news that events
// arrive again. Nothing is stranded, and no more is polled than what the order needs.
func TestNoOrderOfEventsAndTheLastPollStrandsAMessage(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	loop := []string{"execute", "respond", "decide"}
	for name, actors := range map[string][][]string{
		"one event":            {loop, {"enqueue", "event"}},
		"two events":           {loop, {"enqueue", "event"}, {"event"}},
		"two messages":         {loop, {"enqueue", "event"}, {"enqueue", "event"}},
		"a call of Wake":       {loop, {"enqueue", "wake"}},
		"one that falls due":   {loop, {"enqueue", "due"}},
		"a release":            {loop, {"enqueue", "release"}},
		"settings":             {loop, {"enqueue", "settings"}},
		"a lost connection":    {loop, {"lost", "enqueue", "back"}},
		"one that stays lost":  {loop, {"enqueue"}, {"lost"}},
		"event and connection": {loop, {"enqueue", "event"}, {"lost", "enqueue", "back"}},
		"one after a loss":     {loop, {"lost", "enqueue", "back", "enqueue", "event"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, order := range orders(actors...) {
				bubble(t, func(b *bundle) { b.playOrder(order) })
			}
		})
	}
}

// playOrder plays one order with a listener that is idle, and whose next poll was caused by an event
// for nothing.
func (b *bundle) playOrder(order []string) {
	b.Helper()
	g := &gates{execute: make(chan struct{}, 1), respond: make(chan struct{}, 1), decide: make(chan struct{}, 1)}
	b.queue.intercept = func(op string, act func() error) error {
		if op != "dequeue" || !g.closed {
			return act()
		}
		<-g.execute
		err := act()
		<-g.respond
		return err
	}
	source := connected()
	o := wakeOptions(source)
	o.Fetch.SafetyPoll = noSafety
	o.Fetch.Idle = Idle{Min: time.Second, Max: time.Second}
	o.Observer.Polled = func(Poll) {
		if g.closed {
			<-g.decide
		}
	}
	l := New(b.queue, nothing, o)
	b.run(l)
	synctest.Wait()
	b.mustBeIdle(l)
	g.closed = true
	before, sent := b.dequeues(), 0
	b.publish(source)
	synctest.Wait()
	for _, step := range order {
		switch step {
		case "execute":
			g.execute <- struct{}{}
		case "respond":
			g.respond <- struct{}{}
		case "decide":
			// What comes next must not be held.
			g.closed = false
			g.decide <- struct{}{}
		case "enqueue":
			sent++
			b.put(1)
		case "event":
			b.publish(source)
		case "wake":
			l.Wake()
		case "due":
			l.session.onEvent(jobsQueue, 0, time.Time{})
		case "release":
			l.session.onRelease(time.Now(), false)
		case "settings":
			if err := l.Configure(Settings{Concurrency: 63}); err != nil {
				b.Error(err)
			}
		case "lost":
			source.connect(false)
		case "back":
			source.connect(true)
		}
		synctest.Wait()
	}
	what := strings.Join(order, ", ")
	stays := source.connected
	if stays {
		synctest.Wait()
	} else {
		advance(1200 * time.Millisecond) // it polls
	}
	if done := int(l.State().Outcomes[Deleted]); done != sent {
		b.Errorf("%s: got %d of %d messages done, want all", what, done, sent)
	}
	// The poll that is held, one for each thing that was heard, of which some share one, and an empty one.
	heard := len(order) - len([]string{"execute", "respond", "decide"}) - sent
	if polls := b.dequeues() - before; polls > 2+heard+1 {
		b.Errorf("%s: got %d dequeues, want at most %d", what, polls, 2+heard+1)
	}
	if stays {
		b.mustBeIdle(l)
	} else if n := l.State().Loops; n != 1 {
		b.Errorf("%s: got %d loops without a connection, want 1", what, n)
	}
	b.mustFinish()
}

// Several loops end at their first empty poll, in any order, while an event arrives at any time: one of
// them polls for it.
func TestLoopsThatEndTogetherLeaveNoEvent(t *testing.T) {
	for first := range 4 {
		for _, order := range orders([]string{"0", "0", "0"}, []string{"1", "1", "1"}, []string{"event"}) {
			bubble(t, func(b *bundle) { b.playLoops(order, first%2 == 0) })
		}
	}
}

// playLoops plays one order of two loops, each of which is sent, executed and answered, and one event.
func (b *bundle) playLoops(order []string, last bool) {
	b.Helper()
	o := ownerWith(Loops{Min: 2, Max: 2})
	o.state.bounds.Min, o.state.listening = 0, true
	polls, started := 0, 0
	queued := false
	steps, seen, got, left := [2]int{}, [2]uint64{}, [2]bool{}, [2]bool{}
	found := false
	step := func(i int) {
		if left[i] {
			return
		}
		switch steps[i]++; steps[i] {
		case 1:
			o.tell(event{what: begins})
			seen[i] = o.state.heard
		case 2:
			got[i], queued = queued, false
			found = found || got[i]
			polls++
		default:
			polls := got[i]
			if !got[i] {
				counts := o.tell(event{what: emptied, seen: seen[i]})
				left[i], polls = counts[end] > 0, counts[again] > 0
			}
			if polls {
				steps[i] = 0
			}
		}
	}
	for _, what := range order {
		switch what {
		case "0":
			step(0)
		case "1":
			step(1)
		default:
			queued = true
			started += o.tell(event{what: dueNow})[startLoops]
		}
	}
	for range 20 { // what is left to do
		for i := range 2 {
			if last {
				i = 1 - i
			}
			step(i)
		}
		if started > 0 {
			started--
			for i := range 2 {
				if left[i] {
					left[i], steps[i] = false, 0
					break
				}
			}
		}
	}
	if s := o.state; !found || s.active != 0 || polls > 5 || s.signal {
		b.Errorf("%v: got the message %v, %d loops, %d polls, a signal left %v; want it, 0, at most 5, none", order, found, s.active, polls, s.signal)
	}
}

// A subscriber's functions may be called at once, during Subscribe, and with nonsense.
func TestAnEventDuringSubscribe(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		source := &eager{instances: connected()}
		l := New(b.queue, nothing, wakeOptions(source))
		b.run(l)
		advance(2 * time.Second)
		// The first loop runs beside the flood: a burst, another one after the job, and what waited.
		if n := b.dequeues(); n > 2*eventBurst+4 || l.State().Outcomes[Deleted] != 1 {
			b.Errorf("got %d dequeues and %+v, want at most %d and the job done", n, l.State(), 2*eventBurst+4)
		}
		b.mustBeIdle(l)
		b.mustFinish()
	})
}

// eager is a source that has events during Subscribe and after Close.
type eager struct {
	*instances
	subscriber subscriber
}

func (e *eager) flood() {
	for i := range 1000 {
		e.subscriber.Listening(i%2 == 1)
		e.subscriber.Event(jobsQueue, 0, time.Time{})
		e.subscriber.Event(jobsQueue, 0, time.Now().Add(time.Duration(i)*time.Hour))
		e.subscriber.Event(jobsQueue, -1, time.Unix(1<<40, 0))
	}
}

func (e *eager) Subscribe(q queue.Name, event func(q queue.Name, bytes int64, due time.Time), listening func(bool)) (wakeup.Subscription, error) {
	e.subscriber = subscriber{event, listening}
	e.flood()
	return e.instances.Subscribe(q, event, listening)
}

// subscriber has the functions that Subscribe was called with.
type subscriber struct {
	Event     func(q queue.Name, bytes int64, due time.Time)
	Listening func(bool)
}

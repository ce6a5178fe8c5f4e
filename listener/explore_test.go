package listener

import (
	"errors"
	"flag"
	"fmt"
	"hash/maphash"
	"slices"
	"testing"
	"time"
)

var exploreDepth = flag.Int("explore", 0, "how many events the exploration of the owner's steps follows; 0 for the default")

// What a loop of a world is about to do, or waits for.
type place int8

const (
	noLoop place = iota
	atTurn
	atRoom  // has slots
	atBegin // may send a dequeue
	atSent  // the service has not looked yet
	atAnswer
	atHeld // has a batch, until the flag is read
	atEmptied
	atIdled
	atAsleep // until the owner wakes it, or for worldWait
	atDozing // after an error or a limit
	atParked
	atListening // parked until events come, for a moment
)

type worldLoop struct {
	at     place
	woken  bool
	found  bool
	seen   uint64
	served bool
	got    int8
	short  bool // the batch that it emptied the queue with
	failed bool
	until  instant
	order  int8 // of those that sleep
}

// world is a listener with two loops, its queue and its source. It is comparable, so that it can be
// hashed.
type world struct {
	s     state
	alarm instant // what the timer is set to
	loops [2]worldLoop

	emptyAfter int8 // see driver.EmptyAfter

	visible    int8 // messages in the queue
	told       bool // what the source was told of readiness
	nudged     bool // the source is to be told something
	connected  bool // the source reaches this listener when it is told so
	deaf       bool // a call of deafened follows
	announces  bool // log and observer are being told of a pause
	subscribed bool
	fell       bool    // events were lost
	reads      int8    // readings of the flag in progress
	flagAt     instant // when a reading of it last began
	flag       bool    // the flag of the queue
	looks      bool    // a reading of the depth because all slots are taken
	depthReads int8

	// What may still happen.
	puts, events, wakes, pauses, flags, losses, errors, limits, configures, stops, crowds int8
}

const (
	worldNow  = time.Hour // every world is shifted to this time
	longAgo   = worldNow - 2*time.Minute
	worldWait = time.Second
)

// explorer searches the worlds of one configuration, breadth first.
type explorer struct {
	step    func(state, event) (state, []action)
	seed    maphash.Seed
	visited map[uint64]struct{}
	restful map[uint64]struct{} // worlds that are known to come to rest
	faults  map[string]int      // by invariant
	first   map[string]string
	cost    int // steps
}

func (x *explorer) violated(invariant string, w *world, why string) {
	if x.faults[invariant]++; x.faults[invariant] == 1 {
		x.first[invariant] = fmt.Sprintf("%s: loops %+v, visible %d, owed %v, signal %v, listening %v, by %v, stopping %v, asleep %d, active %d, bounds %+v",
			why, w.loops, w.visible, w.s.owed(), w.s.signal, w.s.listening, w.s.pauses, w.s.stopping, w.s.asleep, w.s.active, w.s.bounds)
	}
}

// tell takes a step in a world, and does what follows. i is the loop, or -1.
func (x *explorer) tell(w *world, i int, e event) (answers []verb) {
	x.cost++
	e.now = worldNow
	e.stopped = w.s.stopping
	var actions []action
	before := w.s.bounds
	w.s, actions = x.step(w.s, e)
	for _, a := range actions {
		switch a.do {
		case startLoops:
			for range a.n {
				free := slices.IndexFunc(w.loops[:], func(l worldLoop) bool { return l.at == noLoop })
				if free < 0 || w.s.active > max(w.s.bounds.Max, before.Max) {
					x.violated("bounds", w, "more loops start than the bounds allow")
					continue
				}
				if w.s.stopping {
					x.violated("bounds", w, "a loop starts after the stop")
				}
				w.loops[free] = worldLoop{at: atTurn}
			}
		case wakeLoop:
			first := -1
			for j, l := range w.loops {
				if l.at == atAsleep && (first < 0 || l.order < w.loops[first].order) {
					first = j
				}
			}
			if first < 0 {
				x.violated("stranded", w, "a loop is woken that does not sleep")
				continue
			}
			w.loops[first].at, w.loops[first].woken = atTurn, true
		case unpark:
			for j := range w.loops {
				switch w.loops[j].at {
				case atParked:
					w.loops[j].at = atTurn
				case atHeld:
					x.hold(w, j, x.tell(w, j, event{what: waits}))
				case atListening:
					w.loops[j].at = atBegin
					x.tell(w, j, event{what: met})
				}
			}
		case setAlarm:
			w.alarm = w.s.alarm()
		case tellSource:
			w.nudged = true
		case tellPause:
			w.announces = true
		case readFlag:
			w.reads++
		case readDepth:
			w.depthReads++
		case lookAtDepth:
			w.looks = true
		case end, park, release, again, goToSleep, linger:
			answers = append(answers, a.do)
		}
	}
	if e.what == subscribed {
		w.subscribed = true
	}
	return answers
}

// inner does the n-th thing that follows by itself, and reports whether there is one.
func (x *explorer) inner(w *world, n int) (ok bool) {
	if n < 2 {
		return x.advance(w, n)
	}
	switch n {
	case 2:
		if ok = w.nudged && w.subscribed && !w.deaf; ok {
			w.nudged = false
			x.tell(w, -1, event{what: speaks})
			if w.told != w.s.ready && !w.s.stopping {
				if w.told = w.s.ready; !w.told {
					w.deaf = true
				}
			}
		}
	case 3:
		if ok = w.deaf; ok {
			w.deaf = false
			x.tell(w, -1, event{what: deafened})
		}
	case 4:
		if ok = w.subscribed && !w.deaf && w.told && w.connected && !w.s.listening && !w.s.stopping; ok {
			x.tell(w, -1, event{what: listens, on: true})
		}
	case 5:
		if ok = w.alarm > 0 && w.alarm <= worldNow && !w.s.stopping; ok {
			w.alarm = 0
			x.tell(w, -1, event{what: timePassed})
		}
	case 6:
		if ok = w.announces; ok {
			w.announces = false
			x.tell(w, -1, event{what: announced})
		}
	case 7:
		if ok = w.reads > 0; ok {
			w.reads--
			x.tell(w, -1, event{what: asks})
			w.flagAt = worldNow
			x.tell(w, -1, event{what: read, reading: w.s.readings, ok: true, flag: w.flag})
		}
	case 8:
		if ok = w.depthReads > 0; ok {
			w.depthReads--
			x.tell(w, -1, event{what: asks})
			w.flagAt = worldNow
			x.tell(w, -1, event{what: read, reading: w.s.readings, ok: true, flag: w.flag})
			x.tell(w, -1, event{what: depthRead, ok: true})
			x.tell(w, -1, event{what: sized, target: int(w.visible)})
		}
	case 9:
		if ok = w.looks; ok {
			w.looks = false
			x.tell(w, -1, event{what: depthRead, ok: true})
			x.tell(w, -1, event{what: looked, target: int(w.visible)})
		}
	}
	return ok
}

const inners = 10

// advance does what a loop does next.
func (x *explorer) advance(w *world, i int) (ok bool) {
	l := &w.loops[i]
	ask := func(e event) []verb { return x.tell(w, i, e) }
	has := slices.Contains[[]verb]
	switch l.at {
	case noLoop:
		return false
	case atTurn:
		woken := l.woken
		l.woken = false
		switch answers := ask(event{what: turn, woken: woken}); {
		case has(answers, end):
			*l = worldLoop{}
		case has(answers, park):
			l.at = atParked
		case has(answers, linger):
			l.at, l.until, l.woken = atDozing, worldNow+lingerTime, woken
		case l.found && w.s.wakeups:
			l.at = atRoom
		default:
			l.at = atBegin
		}
	case atRoom:
		if l.at, l.found = atBegin, false; has(ask(event{what: room}), park) {
			l.at, l.until = atListening, worldNow+listenWithin
		}
	case atBegin:
		if has(ask(event{what: begins}), release) {
			l.at = atTurn
			break
		}
		if w.s.pauses != 0 || w.s.stopping {
			x.violated("fetch", w, "a dequeue is sent although the listener is paused or has stopped")
		}
		l.at, l.seen, l.served = atSent, w.s.heard, w.s.served
	case atSent:
		l.at, l.got = atAnswer, min(w.visible, w.asks())
		w.visible -= l.got
	case atAnswer:
		answers := ask(event{what: answered, asked: int(w.asks()), got: int(l.got), emptyAfter: int(w.emptyAfter)})
		l.failed = false
		if l.at = atEmptied; l.got > 0 {
			l.found = true
			x.hold(w, i, answers)
		}
	case atHeld:
		if l.until > worldNow && !w.s.stopping {
			return false
		}
		w.flagAt = worldNow // as if it had failed
		x.hold(w, i, ask(event{what: waits, late: true}))
	case atEmptied:
		short := l.short
		l.found, l.short = l.found && short, false
		switch answers := ask(event{what: emptied, seen: l.seen, short: short}); {
		case has(answers, end):
			*l = worldLoop{}
		case short, has(answers, again):
			l.at = atTurn
		default:
			l.at = atIdled
		}
	case atIdled:
		if has(ask(event{what: idled}), end) {
			*l = worldLoop{}
			break
		}
		if has(ask(event{what: sleeps}), again) {
			l.at, l.woken = atTurn, true
			break
		}
		l.at, l.until, l.order = atAsleep, worldNow+worldWait, 0
		if other := w.loops[1-i]; other.at == atAsleep {
			l.order = other.order + 1
		}
	case atAsleep:
		if l.until > worldNow && !w.s.stopping {
			return false
		}
		ask(event{what: awoke})
		l.at = atTurn
	case atDozing:
		if l.until > worldNow && !w.s.stopping {
			return false
		}
		l.at = atTurn
	case atParked:
		if !w.s.stopping {
			return false
		}
		l.at = atTurn
	case atListening:
		if l.until > worldNow && !w.s.stopping {
			return false
		}
		ask(event{what: met})
		l.at = atBegin
	}
	return true
}

// asks returns how many messages a dequeue asks for. With two there are short batches.
func (w *world) asks() int8 {
	if w.emptyAfter > 0 {
		return 2
	}
	return 1
}

// hold has a loop with a batch wait for the flag, or handle it, or give it back.
func (x *explorer) hold(w *world, i int, answers []verb) {
	l := &w.loops[i]
	if slices.Contains(answers, park) {
		l.at, l.until = atHeld, worldNow+flagWithin
		return
	}
	if l.at = atTurn; l.got < w.asks() && w.s.pauses == 0 {
		l.at, l.short = atEmptied, true
	}
	switch {
	case w.s.pauses&queuePauses != 0:
		w.visible += l.got
	case w.s.pauses == 0 && worldNow-w.flagAt >= flagInterval && !w.s.stopping:
		x.violated("flag", w, "a batch is handled although the flag was not read for a minute")
	}
}

// outer makes the n-th thing happen that need not, and reports whether it can.
func (x *explorer) outer(w *world, n int) (ok bool) {
	spend := func(budget *int8, possible bool) bool {
		if ok = *budget > 0 && possible && !w.s.stopping; ok {
			*budget--
		}
		return ok
	}
	hears := w.told && w.connected && w.s.listening
	switch n {
	case 0:
		if spend(&w.puts, true) {
			w.visible++
			if w.s.wakeups {
				if hears {
					w.events++
				} else {
					w.fell = true
				}
			}
		}
	case 1:
		if spend(&w.events, w.s.wakeups) {
			x.tell(w, -1, event{what: dueNow, limited: true})
		}
	case 2:
		if spend(&w.wakes, true) {
			x.tell(w, -1, event{what: called})
		}
	case 3:
		if spend(&w.pauses, true) {
			x.tell(w, -1, event{what: paused, pause: programPauses, on: w.s.pauses&programPauses == 0})
		}
	case 4:
		if spend(&w.flags, w.reads == 0) {
			w.flag = !w.flag
			w.reads++
		}
	case 5:
		if spend(&w.losses, w.s.wakeups && w.subscribed) {
			if w.connected = !w.connected; !w.connected {
				if w.events > 0 {
					w.fell, w.events = true, 0
				}
				x.tell(w, -1, event{what: listens})
			}
		}
	case 6, 7:
		for i := range w.loops {
			l := &w.loops[i]
			if i != n-6 || l.at != atSent {
				continue
			}
			if spend(&w.errors, true) {
				x.tell(w, i, event{what: answered, asked: 1, err: errDown})
				if l.failed {
					x.tell(w, i, event{what: failing})
				}
				l.at, l.failed, l.until = atDozing, true, worldNow+worldWait
			}
		}
	case 8, 9:
		for i := range w.loops {
			l := &w.loops[i]
			if i == n-8 && l.at == atSent && spend(&w.limits, true) {
				x.tell(w, i, event{what: refused, owed: l.served, long: true})
				l.at, l.until = atDozing, worldNow+worldWait
			}
		}
	case 10:
		if spend(&w.configures, true) {
			most := 3 - w.s.bounds.Max
			x.tell(w, -1, event{what: configured, set: Settings{Loops: Loops{Max: most}}})
		}
	case 11:
		if spend(&w.stops, true) {
			x.tell(w, -1, event{what: enters, phase: Draining})
		}
	case 12:
		if spend(&w.crowds, true) {
			x.tell(w, -1, event{what: crowded})
		}
	case 13:
		ok = x.passTime(w)
	}
	return ok
}

const outers = 14

var errDown = errors.New("down")

// passTime lets time pass until the next instant at which something happens, and reports whether there
// is one.
func (x *explorer) passTime(w *world) bool {
	next := instant(0)
	sooner := func(at instant) {
		if at > worldNow && (next == 0 || at < next) {
			next = at
		}
	}
	sooner(w.alarm)
	for _, l := range w.loops {
		switch l.at {
		case atAsleep, atDozing, atListening, atHeld:
			sooner(l.until)
		}
	}
	if next == 0 || w.s.stopping {
		return false
	}
	w.shift(next - worldNow)
	return true
}

// shift makes all instants earlier, and forgets how long ago the ones in the past were.
func (w *world) shift(d time.Duration) {
	for _, at := range []*instant{
		&w.alarm, &w.flagAt, &w.loops[0].until, &w.loops[1].until, &w.s.grown, &w.s.pollAt, &w.s.paid, &w.s.deferred, &w.s.pausedAt, &w.s.asked,
		&w.s.metadataAt, &w.s.depthAsk, &w.s.depthAt, &w.s.safetyAt, &w.s.flagAt, &w.s.lookAt, &w.s.settled,
	} {
		if *at != 0 {
			*at = max(*at-d, longAgo)
		}
	}
}

// normal makes worlds equal that behave equally.
func (w *world) normal() {
	s := &w.s
	s.begun, s.peak, s.started, s.polls, s.emptyPolls, s.received, s.limited, s.lastPoll = 0, 0, 0, 0, 0, 0, 0, 0
	s.depth, s.depthAt, s.safetyPolls, s.pausedAt, s.since = 0, 0, 0, 0, 0
	if s.paid <= worldNow {
		s.paid = 0
	}
	if s.awaited > 0 {
		s.awaited = max(s.awaited-s.readings, 0) + 10
	}
	s.applied, s.readings = max(s.applied-s.readings, -1)+10, 10
	base := s.polled - 10
	s.polled, s.heard = s.polled-base, s.heard-base
	for i := range w.loops {
		l := &w.loops[i]
		if l.at == noLoop {
			continue
		}
		if l.seen -= base; l.seen != s.heard {
			l.seen = 0
		}
		switch l.at {
		case atSent, atAnswer, atEmptied:
		default:
			l.seen = 0
		}
		if l.at != atAsleep && l.at != atDozing && l.at != atListening && l.at != atHeld {
			l.until = 0
		}
	}
}

// check holds what must be true of every world.
func (x *explorer) check(w *world) {
	active, asleep := 0, 0
	for _, l := range w.loops {
		if l.at != noLoop {
			active++
		}
		if l.at == atAsleep {
			asleep++
		}
		if l.at == atHeld && w.s.awaited == 0 && !w.s.stopping {
			x.violated("flag", w, "a loop holds a batch for no reading")
		}
	}
	if active != w.s.active {
		x.violated("bounds", w, "the owner counts other loops than run")
	}
	if asleep != w.s.asleep || w.s.signal && asleep > 0 {
		x.violated("stranded", w, "a signal woke no loop")
	}
	if w.s.stopping {
		return
	}
	rings := w.alarm
	switch {
	case rings != w.s.alarm():
		x.violated("timers", w, fmt.Sprintf("the timer is set to %v, want %v", rings, w.s.alarm()))
	case w.s.pauses == queuePauses && w.s.flagAt == 0 && w.reads == 0:
		x.violated("timers", w, "no reading of the flag is planned")
	case w.subscribed && w.s.wakeups && w.s.safety > 0 && w.s.safetyAt == 0:
		x.violated("timers", w, "no safety poll is planned")
	case w.s.lookAt == 0 && !w.looks:
		x.violated("timers", w, "no look at the open slots is planned")
	}
}

// checkRest lets everything happen that follows by itself, and holds what must be true then.
func (x *explorer) checkRest(w world, key uint64) {
	const longest = 200
	var path []uint64
	for len(path) < longest {
		if _, known := x.restful[key]; known {
			break
		}
		path = append(path, key)
		moved := false
		for n := range inners {
			if moved = x.inner(&w, (n+len(path))%inners); moved {
				break
			}
		}
		if !moved {
			x.checkQuiet(&w)
			break
		}
		w.normal()
		key = maphash.Comparable(x.seed, w)
	}
	if len(path) == longest {
		x.violated("rest", &w, "events follow from events for ever")
	}
	for _, key := range path {
		x.restful[key] = struct{}{}
	}
}

// checkQuiet holds what must be true when nothing follows by itself.
func (x *explorer) checkQuiet(w *world) {
	asleep, dozing := 0, 0
	for _, l := range w.loops {
		switch l.at {
		case atAsleep:
			asleep++
		case atDozing, atListening, atHeld:
			dozing++
		}
	}
	if w.s.stopping {
		if w.s.active > 0 {
			x.violated("rest", w, "loops run after the stop")
		}
		return
	}
	least := w.s.bounds.Min
	if !w.s.listening {
		least = max(least, 1)
	}
	if w.s.active < least || w.s.active > w.s.bounds.Max+dozing {
		x.violated("bounds", w, "the number of loops is not within the bounds")
	}
	if w.s.pauses != 0 {
		return
	}
	if w.s.owed() && dozing == 0 && w.s.deferred == 0 {
		x.violated("stranded", w, "a poll is owed and no loop is about to poll")
	}
	waits := asleep+dozing > 0 || w.s.deferred > 0 || w.events > 0
	if w.s.wakeups && w.fell {
		waits = waits || w.s.safetyAt > 0
	}
	if w.visible > 0 && !waits {
		x.violated("stranded", w, "a message waits and nothing finds it")
	}
}

// explore searches all worlds up to a depth, and returns how many there are.
func (x *explorer) explore(w world, depth int) {
	x.seed = maphash.MakeSeed()
	x.visited, x.restful = map[uint64]struct{}{}, map[uint64]struct{}{}
	level := [][]world{{w}}
	for d := range depth {
		var next [][]world // in parts: one slice of all would be copied whenever it grows
		for p, part := range level {
			for _, from := range part {
				w := from
				for n := range inners + outers {
					if ok := n < inners && x.inner(&w, n) || n >= inners && x.outer(&w, n-inners); !ok {
						continue // it has changed nothing
					}
					w.normal()
					key := maphash.Comparable(x.seed, w)
					if _, known := x.visited[key]; !known {
						x.visited[key] = struct{}{}
						x.check(&w)
						x.checkRest(w, key)
						if d+1 < depth {
							next = add(next, w)
						}
					}
					w = from
				}
			}
			level[p] = nil
		}
		if level = next; len(x.faults) > 0 {
			return // the shortest way to a fault
		}
	}
}

// add appends a world to the last part.
func add(parts [][]world, w world) [][]world {
	const size = 1 << 10
	if n := len(parts); n == 0 || len(parts[n-1]) == size {
		parts = append(parts, make([]world, 0, size))
	}
	last := &parts[len(parts)-1]
	*last = append(*last, w)
	return parts
}

// newWorld returns the world of a listener that is about to start its first loops.
func (x *explorer) newWorld(wakeups bool, emptyAfter int, safety time.Duration, least int) world {
	w := world{emptyAfter: int8(emptyAfter), told: true, connected: true, puts: 3, wakes: 1, pauses: 2, flags: 2, losses: 2, errors: 2, limits: 1, configures: 2, stops: 1, crowds: 1}
	w.s = state{
		wakeups: wakeups, trickle: lingerAfter - 1, settled: worldNow, safety: safety, linger: lingerTime, batch: 1, concurrency: 2, ready: true,
		requested: Loops{Min: least, Max: 2, Pause: -1}, idle: &Idle{Min: lingerTime, Max: worldWait},
	}
	w.s.applyBounds()
	x.tell(&w, -1, event{what: enters, phase: Running})
	x.tell(&w, -1, event{what: subscribed})
	return w
}

func newExplorer(step func(state, event) (state, []action)) *explorer {
	return &explorer{step: step, faults: map[string]int{}, first: map[string]string{}}
}

// configurations of the exploration.
var configurations = []struct {
	name    string
	wakeups bool
	after   int // emptyAfter
	safety  time.Duration
	least   int
}{
	{"wake-ups", true, 0, -1, 0},
	{"polls", false, 0, 0, 1},
	{"wake-ups with safety polls", true, 0, time.Minute, 0},
	{"wake-ups with loops that stay", true, 0, -1, 2},
	{"wake-ups by the queue", true, 1, -1, 0},
}

// L-36, X-04: in every order of events, up to a depth, of two loops, three messages, a source, pauses, errors, limits,
// changes of the settings, and the stop: nothing is stranded, loops stay within their bounds, nothing
// is fetched after a pause or the stop, every alarm that is needed is set, and the system comes to rest.
func TestEveryOrderOfEventsKeepsTheInvariants(t *testing.T) {
	t.Parallel()
	depth := 8
	if testing.Short() || underRace() { // it has one goroutine
		depth = 4
	}
	if *exploreDepth > 0 {
		depth = *exploreDepth
	}
	worlds, steps, begin := 0, 0, time.Now()
	for _, c := range configurations {
		x := newExplorer(step)
		x.explore(x.newWorld(c.wakeups, c.after, c.safety, c.least), depth)
		worlds, steps = worlds+len(x.visited), steps+x.cost
		for invariant, n := range x.faults {
			t.Errorf("%s: %s is violated %d times, first %s", c.name, invariant, n, x.first[invariant])
		}
	}
	t.Logf("%d worlds by %d steps of the owner, to a depth of %d events, in %v", worlds, steps, depth, time.Since(begin).Round(time.Millisecond))
}

// The exploration finds a fault that is planted for each invariant.
func TestTheExplorationFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	for _, plant := range []struct {
		name, invariant string
		step            func(state, event) (state, []action)
	}{
		{"the last loop leaves whatever was heard", "stranded", func(s state, e event) (state, []action) {
			if e.what == emptied {
				s.polled, e.seen = s.heard, s.heard
			}
			return step(s, e)
		}},
		{"a signal is lost", "stranded", func(s state, e event) (state, []action) {
			next, actions := step(s, e)
			return next, slices.DeleteFunc(actions, func(a action) bool { return a.do == wakeLoop })
		}},
		{"an event starts a loop beyond the bounds", "bounds", func(s state, e event) (state, []action) {
			next, actions := step(s, e)
			if e.what == called {
				next.active++
				actions = append(actions, action{do: startLoops, n: 1})
			}
			return next, actions
		}},
		{"loops end below the minimum", "bounds", func(s state, e event) (state, []action) {
			if e.what == idled {
				s.bounds.Min, s.bounds.Pause = 0, -1
				next, actions := step(s, event{what: emptied, now: e.now})
				if s.active == 1 {
					next.active = 0
					actions = append(actions, action{do: end})
				}
				return next, actions
			}
			return step(s, e)
		}},
		{"a loop fetches in a pause", "fetch", func(s state, e event) (state, []action) {
			if e.what != begins {
				return step(s, e)
			}
			pauses := s.pauses
			s.pauses = 0
			next, actions := step(s, e)
			next.pauses = pauses
			return next, actions
		}},
		{"a loop fetches after the stop", "fetch", func(s state, e event) (state, []action) {
			if e.what != begins {
				return step(s, e)
			}
			stopping := s.stopping
			s.stopping, e.stopped = false, false
			next, actions := step(s, e)
			next.stopping = stopping
			return next, actions
		}},
		{"the timer is not set", "timers", func(s state, e event) (state, []action) {
			next, actions := step(s, e)
			if e.what == timePassed || e.what == read {
				actions = slices.DeleteFunc(actions, func(a action) bool { return a.do == setAlarm })
			}
			return next, actions
		}},
		{"the flag is not read again", "timers", func(s state, e event) (state, []action) {
			next, actions := step(s, e)
			next.flagAt = 0
			return next, actions
		}},
		{"a batch is not held for the flag", "flag", func(s state, e event) (state, []action) {
			next, actions := step(s, e)
			if e.what == answered {
				actions = slices.DeleteFunc(actions, func(a action) bool { return a.do == park })
			}
			return next, actions
		}},
		{"a batch is held after the flag was read", "flag", func(s state, e event) (state, []action) {
			next, actions := step(s, e)
			if e.what == read && next.pauses == s.pauses {
				actions = slices.DeleteFunc(actions, func(a action) bool { return a.do == unpark })
			}
			return next, actions
		}},
		{"an empty poll calls for another one", "rest", func(s state, e event) (state, []action) {
			if e.what == emptied {
				return s, []action{{do: again}}
			}
			return step(s, e)
		}},
	} {
		found, worlds := "", 0
		for _, c := range configurations {
			x := newExplorer(plant.step)
			x.explore(x.newWorld(c.wakeups, c.after, c.safety, c.least), 9)
			worlds += len(x.visited)
			if x.faults[plant.invariant] > 0 {
				found = c.name
				break
			}
		}
		if found == "" {
			t.Errorf("%s: got no violation of %q", plant.name, plant.invariant)
			continue
		}
		t.Logf("%s: violates %q with %s, after %d worlds", plant.name, plant.invariant, found, worlds)
	}
}

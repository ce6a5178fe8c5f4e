package listener

import (
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

// One owner decides everything about the loops of a listener: how many run, when they poll, when
// they may leave, and which readings and calls follow. Its decisions are the function step, which
// takes a state and an event, and returns the next state and the actions that follow. It reads no
// clock and holds no lock; session.tell runs it and carries the actions out. The owner hears of
// polls, slots, and signals, and never of single jobs.

// instant is a time, given as the time since an epoch before the start. Zero means never.
type instant = time.Duration

// state is everything the owner knows. It has no pointers into anything that changes, so a copy of
// it is a snapshot.
type state struct {
	// Options that never change.

	wakeups     bool          // there is a source of wake-ups
	controlled  bool          // a controller says how many loops run: see LoopsByIntake
	metadata    bool          // settings in the metadata of the queue apply
	shared      bool          // the slots are shared with other listeners
	safety      time.Duration // the interval of safety polls; zero or less means no safety polls
	linger      time.Duration // the longest wait for more messages while events follow closely
	batch, most int           // BatchSize, and the messages in a dequeue that is full
	key         string        // of the jitter

	// Settings, which Configure changes.

	concurrency int
	requested   Loops
	bounds      Loops // in force: see Loops.bounds
	idle        *Idle // never changes in place; loops compare the pointer

	// Life.

	phase    Phase
	stopping bool // no loop starts, and nothing is fetched
	begun    instant

	// Loops.

	active  int     // loops that run
	surplus int     // of these, the ones that end after their next poll
	asleep  int     // of these, the ones that a signal wakes
	signal  bool    // a reason to poll that found no loop asleep; the next one does not sleep
	peak    int     // the highest number so far
	started int     // in total
	grown   instant // when loops last started

	// Reasons to poll: events, calls of Wake, changes of listening, messages that become visible
	// again, changed settings. A poll is owed while heard and polled differ. Any number of reasons
	// is worth one poll, so heard goes up only when no poll is owed.

	heard    uint64
	polled   uint64  // heard, when the newest dequeue was about to be sent
	served   bool    // that dequeue was owed
	pollAt   instant // when that was
	paid     instant // when the rate of polls for events allows the next one, were there no burst
	deferred instant // when a reason beyond that rate has its turn
	left     bool    // the newest dequeue may have left messages
	settled  instant // when one last took what there was
	trickle  int     // such dequeues one soon after the other, lingerAfter at most

	// Wake-ups.

	listening bool // events reach this listener
	connected bool // the source said so last
	ready     bool // there is room for work; the source is told when it can be
	more      bool // the source is to wake another instance

	// Pauses, and the flag in the metadata of the queue.

	pauses    pauses
	pausedAt  instant
	announced pauses  // as log and observer were told
	telling   bool    // they are being told
	asked     instant // when the properties of the queue were last asked for
	readings  int     // readings of the properties that began
	awaited   int     // batches wait for the end of this reading, or a later one; 0 for no wait
	applied   int     // the number of the newest reading that was applied
	denied    bool    // the permission to read the flag is missing
	looks     int     // readings of the flag that were planned in this pause

	// Settings in the metadata.

	known      bool      // they were read, and the queue was not missing since
	metadataAt instant   // when they were last asked for or read
	threshold  int       // as applied; may be 0
	seconds    int       // as applied; may be 0
	complaints [2]string // about them, as last reported
	sharing    visibilitySharing

	// The depth.

	busy     bool    // work was found since the last empty poll
	reading  bool    // the depth is being read
	looking  bool    // it is being read because all open slots are taken
	raised   bool    // more loops are allowed, or called for, than before
	since    int     // messages received since the depth was read
	depthAsk instant // when a reading of it last began
	depth    int64
	depthAt  instant

	control control

	// Alarms. Each is an event of its time.

	safetyAt    instant
	safetyWait  time.Duration
	safetyPolls int
	flagAt      instant
	lookAt      instant

	// Figures for State.

	lastPoll                             instant
	pollError                            error
	polls, emptyPolls, received, limited int64
}

// control is an interval of the controller: the work of the loops while their number stayed. It
// begins when all loops have had time to begin and to find the slots that others had taken. It ends
// with a dequeue, after so many of each loop: loops that poll in step bring their messages in
// lumps, and an interval that ended by the clock would hold one lump more or less.
type control struct {
	loops                               int
	settling                            int // dequeues before the interval
	began                               instant
	took                                time.Duration
	dequeues, full, empty, failed, busy int
	received                            int
	asking                              bool // the controller is being asked
}

// visibilitySharing is the lowest visibility that was called for since a time. The lowest, because
// a bad minute is no reason for other workers to begin with more.
type visibilitySharing struct {
	since  instant
	lowest time.Duration
}

// The constants of the rules below.
const (
	// An interval of the controller has so many dequeues of each loop, after some that settle.
	settlingRounds = 2
	measuredRounds = 8
	minInterval    = 100 * time.Millisecond

	// Events, changes of listening, and calls of Wake cause a burst of this many polls, and then
	// one in eventInterval, or in Idle.Max if that is less. A dequeue that finds messages allows a
	// new burst.
	eventBurst    = 10
	eventInterval = time.Second

	// While events follow closely, the next dequeue waits until lingerTime has passed since the last
	// one, or a quarter more than Idle.Min if that is less, and takes what has come meanwhile: polls
	// would be as rare. A source may ask for less. That begins after so many dequeues that left
	// nothing, each within four times that after the one before.
	lingerTime  = 125 * time.Millisecond
	lingerAfter = 3

	// messagesPerDepth is how many messages must have been received since the depth was last read
	// before it is read again. depthInterval is when it is read again although few were received:
	// with slow handlers that many take hours.
	messagesPerDepth = 256
	depthInterval    = 30 * time.Second

	// raisedWait is how long after higher bounds the open slots are looked at. The loops that the
	// bounds start, and the ones that wait, take the free slots first.
	raisedWait = 10 * time.Millisecond

	// flagInterval is how long after a reading of the metadata they are read again for the flag
	// that pauses the workers of a queue: before a batch is handled, and while the flag is set. Up to
	// a tenth is added while it is set, so that the workers of a fleet do not read in step.
	flagInterval = time.Minute

	// metadataInterval is how long after a reading the metadata are read again for the settings in
	// them.
	metadataInterval = time.Minute

	// sharingPeriod is how long a visibility must have been called for before it is written to the
	// metadata. It is also how often it is written at most.
	sharingPeriod = 10 * time.Minute
)

// event is something that the owner hears of. The fields after stopped depend on what happened.
type event struct {
	what      happening
	now       instant
	stopped   bool // the context of the run has ended, or Halt was called
	saturated bool // all open slots are taken, and more could be opened

	on      bool     // paused, listens: it begins
	pause   pauses   // paused
	limited bool     // dueNow: a flood of these must not become a flood of polls
	phase   Phase    // enters
	set     Settings // configured
	idle    *Idle    // configured: the new Idle with its defaults, or nil

	released, called bool // timePassed: a message becomes visible again; an event falls due
	left             bool // timePassed: a message becomes visible again that this worker cannot handle
	mayOpen, backlog bool // crowded: more slots could be opened; the last dequeue was full
	woken            bool // turn: a signal woke the loop, or kept it from sleeping

	short      bool   // emptied: it found messages, but fewer than it asked for
	seen       uint64 // emptied: heard, when the dequeue of the loop was about to be sent
	owed, long bool   // refused: the dequeue was owed; the limit holds for long
	late       bool   // waits: the wait has lasted long enough

	asked, got int   // answered: messages requested and received
	emptyAfter int   // answered: see driver.EmptyAfter
	err        error // answered
	missing    bool  // answered, read: the queue does not exist
	throttled  bool  // answered: the service was busy
	first      bool  // answered: the loop has found nothing before

	ok      bool // read, depthRead: the request succeeded
	refusal bool // read: the permission is missing
	reading int  // read: its number
	flag    bool // read: the queue is paused

	settings           bool // read: they apply, and are these
	threshold, seconds int
	complaints         [2]string     // read: the mistake in each of them
	found              time.Duration // sampled: the visibility that handling times call for

	depth  int64 // depthRead
	target int   // sized, steered, looked: loops that the load calls for
}

// happening is the kind of an event.
type happening int

const (
	enters     happening = iota // a phase of the listener begins
	subscribed                  // events can come: the first loops start
	paused                      // the listener is paused or resumed
	configured                  // settings change

	called     // Wake was called
	dueNow     // work may be visible now
	listens    // the source says whether events reach this listener
	deafened   // the source was told that there is no room, and delivers nothing from then on
	speaks     // the source can be told something
	crowded    // a loop waits for slots, or there is an outage of the handlers
	failing    // dequeues fail
	timePassed // an alarm, or an instant that was remembered

	turn     // a loop is about to reserve slots
	room     // a loop has slots again, after a while without
	met      // that loop has waited for events to reach the listener
	begins   // a loop is about to send a dequeue
	refused  // a limit of the program held the dequeue back
	answered // the dequeue was answered
	waits    // the batch waits for a reading of the flag
	emptied  // it has emptied the queue, and the loop may end if events come
	idled    // the wait of the loop has reached its maximum, and it may end
	sleeps   // a loop is about to sleep
	awoke    // a loop woke up by its timer
	noticed  // a loop has noticed a new Idle, and others may be in a long sleep by the old one

	asks      // the properties of the queue are asked for
	read      // they were answered
	sampled   // the visibility that handling times call for was looked up, to be shared
	depthRead // so was the depth
	sized     // it is known how many loops the load calls for
	looked    // the same, after a reading because all open slots are taken
	exceeded  // the queue may have more than this instance can take
	steered   // the controller has said how many loops should run
	announced // log and observer were told of a pause
)

// action is something to do because of an event.
type action struct {
	do   verb
	n, m int
	by   pauses // tellPause: those that apply now
	was  pauses // and before
	on   bool
	text string
	d    time.Duration
}

type verb int

const (
	// These never wait. They are carried out in the order of the events.

	startLoops    verb = iota // n loops; on: each of them tells the observer, because the caller must not wait
	openSlots                 // n slots, of at most m
	openOnce                  // slots for one dequeue beyond the open ones
	resize                    // the concurrency is n
	wakeLoop                  // the loop that has slept longest
	unpark                    // the loops that are parked
	setAlarm                  // the earliest alarm has changed
	tellSource                // there may be something to tell the source of wake-ups
	applySettings             // the threshold n and the visibility of m seconds

	// These call the program or send requests. The goroutine that tells of the event carries them
	// out.

	tellScaled    // tell the observer of the number of loops
	tellPause     // tell log and observer that by pauses, and was did
	tellDenied    // log that the flag is not followed
	tellSettings  // log the settings in the metadata: n and m
	complain      // report an invalid setting
	readFlag      // read the properties for the flag
	readDepth     // read the depth; n messages were received; on: a full batch showed that there may be more
	lookAtDepth   // read the depth because all open slots are taken
	size          // say how many loops n messages, or as many as run, call for
	askController // about the interval

	// These answer the goroutine that tells of the event. Without one, a loop continues.

	end          // the loop has left
	park         // wait until something changes
	release      // give the slots back
	readMetadata // read them before the dequeue; on: the dequeue depends on them
	again        // poll immediately
	goToSleep    // until a signal or the timer
	linger       // for d, and take another turn
	share        // write the visibility d to the metadata
	callMore     // let the source wake another instance
)

// transition is one step.
type transition struct {
	*state
	e       event
	actions []action
}

func (t *transition) do(a action) { t.actions = append(t.actions, a) }

// step returns the state after an event, and the actions that follow from it.
func step(s state, e event) (state, []action) {
	t := transition{state: &s, e: e}
	t.take()
	return s, t.actions
}

// take takes the step in place: the state is large, and each poll takes several steps.
func (t *transition) take() {
	alarm, e := t.alarm(), &t.e
	t.stopping = t.stopping || e.stopped
	switch e.what {
	case enters:
		t.enter()
	case subscribed:
		if t.wakeups && t.safety > 0 {
			t.planSafetyPoll()
		}
		t.grow(0)
	case paused:
		if !t.stopping {
			t.pause(e.pause, e.on)
		}
	case configured:
		t.configure()
	case called:
		t.hear(true)
	case dueNow:
		t.fallDue(e.limited)
	case listens:
		t.listen()
	case deafened:
		t.listening = false
		if t.active == 0 {
			t.startOne() // it could count on no event
		}
	case speaks:
		if t.more {
			t.more = false
			t.do(action{do: callMore})
		}
	case crowded:
		t.crowd()
	case failing:
		t.passOn(true)
	case timePassed:
		t.passTime()
	case turn:
		t.takeTurn()
	case room:
		if !t.ready && !t.listening && t.connected {
			if t.setReady(true); t.ready {
				t.do(action{do: park})
			}
		}
	case met:
		if t.listening {
			t.signal = false // the dequeue that follows serves it
		}
	case begins:
		t.beginPoll()
	case refused:
		t.refuse()
	case answered:
		t.answer()
	case waits:
		t.holdBatch()
	case emptied:
		t.leave()
	case idled:
		// Never the last one, nor within Pause of the last growth. Only leave ends the last one.
		if t.active > max(t.bounds.Min, 1) && e.now-t.grown >= t.bounds.Pause {
			t.endLoop()
		}
	case sleeps:
		if t.signal {
			t.signal = false
			t.do(action{do: again})
			break
		}
		t.asleep++
		t.do(action{do: goToSleep})
	case awoke:
		t.asleep--
	case noticed:
		t.wake()
	case asks:
		t.readings++
		if t.flagIsOld() {
			t.awaited = t.readings
		}
		t.asked = e.now
	case read:
		t.readProperties()
	case sampled:
		if lowest := t.sharing.sample(e.now, e.found); lowest > 0 {
			t.do(action{do: share, d: lowest})
		}
	case depthRead:
		t.reading = false
		if e.ok {
			t.depth, t.depthAt = e.depth, e.now
		}
	case sized:
		if t.active > 0 { // else the last loop found the queue empty since the depth was asked for
			t.grow(e.target)
		}
	case looked:
		t.endLook()
	case exceeded:
		t.wakeAnother()
	case steered:
		t.steer()
	case announced:
		t.telling = false
		t.announce()
	}
	if t.alarm() != alarm {
		t.do(action{do: setAlarm})
	}
}

// alarm returns the earliest instant at which the owner must hear that time has passed.
func (s *state) alarm() (earliest instant) {
	for _, at := range [...]instant{s.safetyAt, s.flagAt, s.lookAt, s.deferred} {
		if at > 0 && (earliest == 0 || at < earliest) {
			earliest = at
		}
	}
	return earliest
}

// owed reports whether something was heard that no poll has served.
func (s *state) owed() bool { return s.heard != s.polled }

// mayRun reports whether loops may start.
func (s *state) mayRun() bool { return s.phase == Running && !s.stopping }

// ago returns how long ago an instant was. Never is longer ago than anything.
func (t *transition) ago(at instant) time.Duration {
	if at == 0 {
		return 1<<63 - 1
	}
	return t.e.now - at
}

// Life.

func (t *transition) enter() {
	switch t.phase = t.e.phase; t.phase {
	case Running:
		t.begun = t.e.now
		if !t.raised {
			t.lookAt = t.e.now + depthInterval
		}
		t.announce()
	case Draining:
		t.stopping = true
	}
}

func (t *transition) configure() {
	c := t.e.set
	t.requested = t.requested.changed(c.Loops)
	if c.Concurrency > 0 {
		t.concurrency = c.Concurrency
		t.do(action{do: resize, n: c.Concurrency})
	}
	if t.e.idle != nil {
		t.idle = t.e.idle
	}
	before := t.bounds.Max
	t.applyBounds()
	t.open() // the concurrency may have changed too
	if t.bounds.Max > before {
		t.raise()
	}
	t.grow(t.bounds.Min)
	t.do(action{do: unpark}) // loops in excess end immediately
	owed := t.owed()
	t.hear(false)
	if owed && t.active > t.bounds.Max {
		t.wake() // so do the ones that sleep
	}
}

// applyBounds puts the bounds in force that follow from the settings.
func (s *state) applyBounds() {
	least := 1
	if s.wakeups {
		least = 0
	}
	s.bounds = s.requested.bounds(s.concurrency, s.batch, least)
	s.most = min(s.batch, s.concurrency)
}

// Loops.

// grow starts loops up to the target, within the bounds. Several callers with the same target start
// the difference once.
func (t *transition) grow(target int) {
	if !t.mayRun() {
		return
	}
	target = min(max(target, t.least()), t.bounds.Max)
	t.surplus = min(t.surplus, max(t.active-target, 0))
	if n := target - t.active; n > 0 {
		t.add(n)
		t.do(action{do: startLoops, n: n})
		t.do(action{do: tellScaled})
	}
}

// least returns how many loops must run: one at least while no events reach the listener.
func (t *transition) least() int {
	if t.listening {
		return t.bounds.Min
	}
	return max(t.bounds.Min, 1)
}

// add counts n loops that are about to start. Their slots are opened before, or a new loop might
// dequeue for the slots that were open.
func (t *transition) add(n int) {
	t.active += n
	t.started += n
	t.peak = max(t.peak, t.active)
	t.grown = t.e.now
	t.open()
}

// open opens the slots that the loops fill in one dequeue each. With a controller all that
// Loops.Max allows are open, or it could not tell the effect of more loops from the effect of more
// handlers.
func (t *transition) open() {
	loops := t.active
	if t.controlled {
		loops = t.bounds.Max
	}
	t.do(action{do: openSlots, n: loops * t.batch, m: t.bounds.Max * t.batch})
}

// startOne starts a loop for something that was heard while no loop runs.
func (t *transition) startOne() {
	if t.mayRun() {
		t.add(1)
		t.do(action{do: startLoops, n: 1, on: true})
	}
}

// takeTurn answers a loop that is about to reserve slots.
func (t *transition) takeTurn() {
	switch {
	case t.stopping:
		t.active--
		t.do(action{do: end})
	case t.active > t.bounds.Max || t.surplus > 0:
		if t.e.woken || t.pauses != 0 {
			t.wake() // the signal is for another loop
		}
		t.endLoop()
	case t.pauses != 0:
		t.do(action{do: park})
	case t.listening && t.trickle >= lingerAfter && !t.left:
		if d := t.lingerTime() - t.ago(t.settled); d > 0 {
			t.do(action{do: linger, d: d})
		}
	}
}

func (t *transition) lingerTime() time.Duration { return min(t.idle.Min+t.idle.Min/4, t.linger) }

// settle records that a dequeue has taken what there was, as far as it shows.
func (t *transition) settle() {
	if t.ago(t.settled) >= 4*t.lingerTime() {
		t.trickle = 0
	}
	t.trickle = min(t.trickle+1, lingerAfter)
	t.settled, t.left = t.e.now, false
}

// endLoop ends the calling loop, while others may continue.
func (t *transition) endLoop() {
	t.active--
	t.surplus = max(t.surplus-1, 0)
	if t.active == 0 {
		t.signal = false // its poll has served it
	}
	t.open()
	t.do(action{do: end})
	t.do(action{do: tellScaled})
}

// leave ends the calling loop after a dequeue that has emptied the queue, if events reach the
// listener. The last loop may only leave if nothing was heard since its dequeue was about to be
// sent: that may be about a message that came after the service had looked. The others leave it to
// that loop, unless no poll since then has begun. If the loop must not leave, it polls again.
func (t *transition) leave() {
	switch {
	case !t.listening || t.stopping || t.active <= t.bounds.Min:
	case t.owed() || t.active == 1 && t.heard != t.e.seen:
		t.do(action{do: again})
	default:
		t.busy = t.busy && !t.e.short
		t.endLoop()
	}
}

// steer makes as many loops run as the controller says: the missing ones start, and surplus ones
// end after their next polls, but never the last one: nothing would start it again for the messages
// that are left. If no loop runs, the last one has found the queue empty.
func (t *transition) steer() {
	if t.active > 0 {
		t.surplus = max(t.active-min(max(t.e.target, t.least(), 1), t.bounds.Max), 0)
		t.grow(t.e.target)
	}
	t.control.asking = false
	t.control.restart(t.active, t.e.now)
}

// Reasons to poll.

// hear records that a poll is called for, and starts a loop if no loop runs, or else wakes one.
// With limited it may have to wait for its turn: polls that find nothing must not follow a flood of
// events.
func (t *transition) hear(limited bool) {
	fresh := !t.owed()
	if fresh {
		if limited && !t.stopping && !t.takePoll() {
			return
		}
		t.heard++
		if t.wakeups && t.e.saturated {
			t.raise()
		}
	}
	if t.active == 0 {
		t.startOne()
	} else if fresh {
		t.wake()
	}
}

// takePoll counts a poll for an event, or defers it.
func (t *transition) takePoll() bool {
	interval := min(t.idle.Max, eventInterval)
	paid := max(t.paid, t.e.now)
	if wait := paid - t.e.now - (eventBurst-1)*interval; wait > 0 {
		t.deferred = t.e.now + wait
		return false
	}
	t.paid = paid + interval
	return true
}

// wake wakes the loop that has slept longest, or the next one to sleep.
func (t *transition) wake() {
	if t.asleep == 0 {
		t.signal = true
		return
	}
	t.asleep--
	t.do(action{do: wakeLoop})
}

// fallDue makes a loop poll for messages that are visible now. An instance that has no room for
// them wakes another one, because no other instance may know of them, unless the queue is paused
// for all.
func (t *transition) fallDue(limited bool) {
	t.hear(limited)
	if !t.ready && t.pauses&queuePauses == 0 {
		t.wakeAnother()
	}
}

// Polls.

// beginPoll answers a loop that is about to send a dequeue. That serves all that was heard so far.
func (t *transition) beginPoll() {
	switch {
	case t.stopping || t.pauses != 0:
		t.do(action{do: release})
	case t.metadata && (!t.known || t.ago(t.metadataAt) >= metadataInterval):
		t.do(action{do: readMetadata, on: !t.known})
		t.metadataAt = t.e.now // only one loop repeats a reading
	default:
		t.served = t.owed()
		t.polled, t.pollAt = t.heard, t.e.now
	}
}

// refuse records that a limit of the program has held a dequeue back. Nothing was sent, so a poll
// that was owed is owed still. It is neither an empty poll nor an error.
func (t *transition) refuse() {
	t.limited++
	if t.e.owed && !t.owed() {
		t.heard++
	}
	if t.e.long {
		t.passOn(t.e.owed)
	}
}

// answer records the answer to a dequeue, and decides about readings and calls that follow.
func (t *transition) answer() {
	e := &t.e
	t.pollError = e.err
	if e.missing {
		t.busy, t.known = false, false // it may come back with other metadata
		return
	}
	if t.controlled {
		t.measure()
	}
	if e.err != nil {
		return
	}
	t.lastPoll = e.now
	t.polls++
	t.received += int64(e.got)
	if e.got == 0 {
		t.emptyPolls++
		if t.busy { // else the event was false, and false events do not make a trickle
			t.settle()
		}
		t.busy = false
		t.setReady(true)
		return
	}
	t.paid = 0
	full := e.got >= e.asked
	switch {
	case full:
		t.trickle, t.left = 0, true
	case e.emptyAfter > 0:
		t.settle()
	default:
		t.left = true
	}
	more := full && e.asked >= t.most // the queue may have more
	if t.pauses == 0 {
		if t.flagIsOld() && !t.stopping {
			t.awaited = t.readings + 1 // it is planned below
		}
		// A dequeue for the few shared slots that an idle listener may take is full soon: the next
		// one, for more, tells whether the load calls for a reading of the depth.
		if look := t.shared && e.first && full && !more; !look {
			more = t.rescale(full, more)
		}
		// After rescale, because a reading of the depth is as good. So an idle listener never reads
		// the flag.
		if t.flagIsOld() && !t.stopping {
			t.asked = e.now
			t.do(action{do: readFlag})
		}
		t.holdBatch()
	}
	if more {
		t.wakeAnother()
	}
}

// flagIsOld reports whether a batch must wait for a reading of the flag.
func (t *transition) flagIsOld() bool { return !t.denied && t.ago(t.asked) >= flagInterval }

// holdBatch answers a loop that has a batch: it waits for the reading of the flag, unless that has
// ended, in success or failure, or takes too long.
func (t *transition) holdBatch() {
	if t.e.late {
		t.endHold()
	}
	if t.awaited > 0 && t.pauses&queuePauses == 0 && !t.stopping {
		t.do(action{do: park})
	}
}

func (t *transition) endHold() {
	t.awaited = 0
	t.do(action{do: unpark})
}

// rescale asks how many loops the load calls for, after a batch with messages: when work appears on
// an idle queue, including at the start, and otherwise only while full batches keep coming. That
// edge is the listener's, not each loop's, so that loops that wake up together ask once. Reading
// the depth costs a transaction, so it is read only after a full batch; a batch that was not full
// has emptied the queue, and then the depth is what this listener holds. With a controller it asks
// only when work appears. If the queue may have more than the batch, the depth also decides whether
// another instance is woken; rescale returns true if it is not read and one must be.
func (t *transition) rescale(full, more bool) (wake bool) {
	t.since += t.e.got
	again := full && (t.since >= messagesPerDepth || t.ago(t.depthAsk) >= depthInterval)
	if t.reading || t.busy && (!again || !t.growsByDepth()) {
		return more
	}
	t.busy = true
	if !full {
		t.do(action{do: size, n: t.e.got})
		return more
	}
	t.beginReading()
	t.asked = t.e.now
	t.do(action{do: readDepth, n: t.e.got, on: more})
	return false
}

func (t *transition) beginReading() { t.reading, t.since, t.depthAsk = true, 0, t.e.now }

// growsByDepth reports whether a backlog is a reason to read the depth and start loops: not with a
// controller, which learns from the dequeues whether more loops bring more, and keeps all slots
// open.
func (t *transition) growsByDepth() bool { return !t.controlled && t.active < t.bounds.Max }

// measure counts a dequeue for the controller, and asks it if that ends the interval.
func (t *transition) measure() {
	c := &t.control
	switch {
	case c.asking:
		return
	case t.active != c.loops:
		c.restart(t.active, t.e.now)
	case c.settling > 0:
		if c.settling--; c.settling == 0 {
			c.began = t.e.now
		}
	default:
		c.count(&t.e)
	}
	c.took = t.e.now - c.began
	if c.busy > 0 || c.dequeues >= measuredRounds*c.loops && c.took >= minInterval {
		c.asking = true
		t.do(action{do: askController})
	}
}

// restart begins an interval for this many loops.
func (c *control) restart(loops int, now instant) {
	*c = control{loops: loops, settling: settlingRounds * loops, began: now}
}

func (c *control) count(e *event) {
	c.dequeues++
	c.received += e.got
	switch {
	case e.throttled:
		c.busy++
	case e.err != nil:
		c.failed++
	case e.got == 0:
		c.empty++
	case e.got >= e.asked:
		c.full++
	}
}

// Slots that are all taken.

// crowd acts on a loop that waits for slots. If no more can be opened there is no room for work,
// and other instances should get the events.
func (t *transition) crowd() {
	switch {
	case !t.e.mayOpen || !t.growsByDepth():
		// Too few shared slots for a full batch leave no other sign that the queue has more.
		t.passOn(t.owed() || t.shared && t.e.backlog)
	case t.owed():
		t.raise()
	}
}

// raise has the open slots looked at soon, because a loop may wait for more.
func (t *transition) raise() {
	t.raised = true
	if !t.looking {
		t.lookAt = t.e.now + raisedWait
	}
}

// look reads the depth if all open slots are taken and more may be opened, unless it was read
// recently: no loop dequeues then, so a backlog would go unnoticed.
func (t *transition) look() {
	raised := t.raised
	t.raised = false
	wait := depthInterval - t.ago(t.depthAsk)
	switch {
	case !t.e.saturated || !t.growsByDepth() || t.pauses != 0:
		t.lookAt = t.e.now + depthInterval
	case t.reading || wait > 0 && !raised:
		t.lookAt = t.e.now + max(wait, time.Second)
	default:
		t.beginReading()
		t.looking = true
		t.polled = t.heard // in place of a poll
		t.do(action{do: lookAtDepth})
	}
}

// endLook ends that. If the queue holds more than this listener and that calls for more loops, the
// waiting loop may send one dequeue. Only one, because other instances may hold the messages: only
// a full batch proves a backlog, and then the depth is read again.
func (t *transition) endLook() {
	if t.e.target > t.active {
		t.since = messagesPerDepth
		t.do(action{do: openOnce})
	}
	t.looking = false
	if t.lookAt = t.e.now + depthInterval; t.raised {
		t.lookAt = t.e.now + raisedWait
	}
}

// Readiness.

func (t *transition) listen() {
	t.listening, t.connected = t.e.on, t.e.on
	t.hear(true)
	if t.e.on {
		t.do(action{do: unpark})
	}
	t.do(action{do: tellSource})
}

// setReady sets whether events may come to this instance: never while it is paused.
func (t *transition) setReady(ready bool) (changed bool) {
	ready = ready && t.pauses == 0
	if changed = t.wakeups && t.ready != ready; changed {
		t.ready = ready
		t.do(action{do: tellSource})
	}
	return changed
}

// passOn lets events go to other instances. With woken another one is woken, because this one has
// heard of work and does not get to it.
func (t *transition) passOn(woken bool) {
	if t.setReady(false) && woken {
		t.wakeAnother()
	}
}

func (t *transition) wakeAnother() {
	if t.wakeups {
		t.more = true
		t.do(action{do: tellSource})
	}
}

// Pauses.

// pause sets or removes one of the reasons to pause.
func (t *transition) pause(reason pauses, on bool) {
	now := t.pauses &^ reason
	if on {
		now |= reason
	}
	if now == t.pauses {
		return
	}
	if t.pauses == 0 {
		t.pausedAt = t.e.now
	}
	if t.pauses = now; now == 0 && t.mayRun() {
		t.hear(false)
	}
	t.do(action{do: unpark})
	t.announce()
	t.planFlag()
}

// announce has log and observer told of a change, one at a time and in order.
func (t *transition) announce() {
	if t.phase == Waiting || t.telling || t.pauses == t.announced {
		return
	}
	t.do(action{do: tellPause, by: t.pauses, was: t.announced})
	t.announced, t.telling = t.pauses, true
	if t.pauses != 0 {
		t.setReady(false) // events are for instances that are not paused
		if t.owed() {
			t.wakeAnother() // even for the event that woke this instance
		}
	}
}

// The properties of the queue.

// readProperties applies a reading completely, for any reason of the reading.
func (t *transition) readProperties() {
	e := &t.e
	if t.awaited > 0 && e.reading >= t.awaited {
		t.endHold()
	}
	if e.settings {
		t.applySettings()
	}
	switch {
	case t.stopping:
	case e.refusal:
		// A paused listener continues to read, or nothing would ever resume it.
		if !t.denied && t.pauses&queuePauses == 0 {
			t.denied = true
			t.do(action{do: tellDenied})
		}
	case (e.ok || e.missing) && e.reading > t.applied: // else it began before one that was applied
		t.applied, t.denied = e.reading, false
		t.pause(queuePauses, e.flag) // a queue that is missing has no flag
	}
	t.planFlag()
}

// planFlag plans the next reading of the flag, while it alone pauses the listener.
func (t *transition) planFlag() {
	switch {
	case t.pauses&queuePauses == 0:
		t.flagAt, t.looks = 0, 0
	case t.pauses != queuePauses:
		t.flagAt = 0
	case t.flagAt == 0:
		t.looks++
		t.flagAt = t.asked + flagInterval + time.Duration(waiting.Jitter(t.key+"/paused", t.looks)*float64(flagInterval)/10)
	}
}

// applySettings applies the settings in the metadata. Invalid ones are reported once.
func (t *transition) applySettings() {
	e := &t.e
	for i, text := range e.complaints {
		if text != "" && text != t.complaints[i] {
			t.do(action{do: complain, text: text})
		}
	}
	t.complaints = e.complaints
	t.do(action{do: applySettings, n: e.threshold, m: e.seconds})
	if t.threshold != e.threshold || t.seconds != e.seconds {
		t.do(action{do: tellSettings, n: e.threshold, m: e.seconds})
	}
	t.threshold, t.seconds = e.threshold, e.seconds
	t.known, t.metadataAt = true, e.now
}

// sample takes the visibility that is called for now. Every sharingPeriod it returns the lowest in
// that time, and 0 in between.
func (v *visibilitySharing) sample(now instant, found time.Duration) time.Duration {
	if v.since == 0 {
		v.since, v.lowest = now, found
	}
	v.lowest = min(v.lowest, found)
	if now-v.since < sharingPeriod {
		return 0
	}
	lowest := v.lowest
	v.since, v.lowest = now, found
	return lowest
}

// Time.

// passTime does all that is due.
func (t *transition) passTime() {
	if t.e.released {
		t.fallDue(false)
	}
	if t.e.called {
		t.fallDue(true)
	}
	if t.e.left && t.pauses&queuePauses == 0 {
		t.wakeAnother()
	}
	if t.isDue(&t.deferred) {
		t.fallDue(true)
	}
	if t.isDue(&t.safetyAt) {
		// Lazily: a poll does not set the alarm.
		if wait := t.safetyWait - t.ago(t.pollAt); wait > 0 {
			t.safetyAt = t.e.now + wait
		} else {
			t.hear(false)
			t.planSafetyPoll()
		}
	}
	if t.isDue(&t.flagAt) {
		t.do(action{do: readFlag})
	}
	if t.isDue(&t.lookAt) {
		t.look()
	}
}

// isDue reports whether an alarm is due, and takes it back.
func (t *transition) isDue(at *instant) bool {
	if *at == 0 || *at > t.e.now {
		return false
	}
	*at = 0
	return true
}

// planSafetyPoll plans a poll for a time without polls, so that a lost event costs no more than
// that time. Longer by up to 10 %, so that processes that started together do not poll together.
func (t *transition) planSafetyPoll() {
	t.safetyPolls++
	t.safetyWait = t.safety + time.Duration(waiting.Jitter(t.key+"/safety", t.safetyPolls)*float64(t.safety)/10)
	t.safetyAt = t.e.now + t.safetyWait
}

package simulation

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
	"github.com/millrace/millrace/wakeup"
)

// wakesPlan is how wake-ups reach the workers of a world. The zero value is that they poll.
type wakesPlan struct {
	on       bool
	engine   bool    // they come from the engine and not from the producer; the others do not apply, except safety
	lost     float64 // share of the events that reach nobody
	doubled  float64
	foreign  float64       // share that have a companion for another queue
	latest   time.Duration // how late an event may be
	safety   time.Duration // between safety polls
	breaking int           // how often a connection is lost, at most
}

// drawWakes draws the wake-ups of a world.
func (p *plan) drawWakes() {
	d := p.dice
	if !d.chance(0.15, "wakes") {
		return
	}
	p.wakes = wakesPlan{
		on: true, lost: d.unit("wakes", "lost") * 0.3, doubled: d.unit("wakes", "doubled") * 0.3, foreign: d.unit("wakes", "foreign") * 0.3,
		latest: d.steep(time.Millisecond, 10*time.Second, "wakes", "latest"), safety: d.within(5*time.Second, time.Minute, "wakes", "safety"),
		breaking: d.number(0, 3, "wakes", "breaking"),
	}
	if p.faultless {
		p.wakes.lost, p.wakes.breaking = 0, 0
	}
}

// wakeBroker carries events between the processes of a world. An event reaches one of those that are
// connected and ready. Every delivery takes its own time, so that no two things happen at one instant.
type wakeBroker struct {
	world *world

	mu      sync.Mutex
	members []*wakeMember // guarded by mu
}

// wakeMember is the subscription of a process. It is also the source that has no other.
type wakeMember struct {
	broker  *wakeBroker
	process *process
	of      subscriber
	turn    sync.Mutex // held while the subscriber is called

	ready, connected, closed bool // guarded by broker.mu
	asked, more              int  // calls of Ready and of More; guarded by broker.mu
}

// after calls f after a time that depends on its name, up to that long.
func (b *wakeBroker) after(long time.Duration, name string, f func()) {
	time.AfterFunc(b.world.plan.dice.within(time.Millisecond, long+2*time.Millisecond, "wakes", name), f)
}

// publish is called by the producer when a message was accepted.
func (b *wakeBroker) publish(j jobPlan) {
	d, p := b.world.plan.dice, b.world.plan.wakes
	if !p.on {
		return
	}
	about := "job " + str(j.n)
	due := time.Time{}
	if j.delay > 0 {
		due = time.Now().Add(time.Duration(driver.Seconds(j.delay)) * time.Second)
	}
	if d.chance(p.foreign, "wakes", "foreign", about) {
		other := queue.Name{Account: jobs.Account, Queue: "other"}
		b.after(p.latest, about+" foreign", func() { b.deliver(other, due, nil, about+" foreign") })
	}
	copies := 1
	if d.chance(p.doubled, "wakes", "doubled", about) {
		copies = 2
	}
	if b.world.now() < b.world.plan.horizon && d.chance(p.lost, "wakes", "lost", about) {
		copies = 0
	}
	for i := range copies {
		name := about + " copy " + str(i)
		b.after(p.latest, name, func() { b.deliver(jobs, due, nil, name) })
	}
}

// deliver calls one of the members, other than that one, which depends on the event's name.
func (b *wakeBroker) deliver(q queue.Name, due time.Time, other *wakeMember, name string) {
	b.mu.Lock()
	var able []*wakeMember
	for _, m := range b.members {
		if m.ready && m.connected && !m.closed && m != other && !m.process.isDead() {
			able = append(able, m)
		}
	}
	b.mu.Unlock()
	if len(able) == 0 {
		return
	}
	slices.SortFunc(able, func(a, b *wakeMember) int { return strings.Compare(a.process.plan.name, b.process.plan.name) })
	m := pick(b.world.plan.dice, able, "wakes", "to", name)
	m.call(func() { m.of.Event(q, 0, due) })
}

// Subscribe implements [wakeup.Source] for the process.
func (m *wakeMember) Subscribe(_ queue.Name, event func(q queue.Name, bytes int64, due time.Time), listening func(bool)) (wakeup.Subscription, error) {
	b := m.broker
	m.of, m.connected = subscriber{event, listening}, true
	b.mu.Lock()
	b.members = append(b.members, m)
	b.mu.Unlock()
	m.Ready(true)
	plan := b.world.plan
	for i := range plan.wakes.breaking {
		about := []string{"wakes", "connection", m.process.plan.name, str(i)}
		from := plan.dice.within(0, plan.horizon, append(about, "from")...) - b.world.now()
		if from < time.Millisecond {
			continue
		}
		time.AfterFunc(from, func() { m.connect(false) })
		long := plan.dice.within(time.Millisecond, 2*time.Minute, append(about, "long")...)
		time.AfterFunc(min(from+long, plan.horizon-b.world.now()+time.Duration(i)*time.Microsecond), func() { m.connect(true) })
	}
	return m, nil
}

func (m *wakeMember) call(f func()) {
	m.turn.Lock()
	defer m.turn.Unlock()
	if !m.closed {
		f()
	}
}

func (m *wakeMember) connect(on bool) {
	m.broker.mu.Lock()
	m.connected = on
	tell := m.ready
	m.broker.mu.Unlock()
	if tell {
		m.call(func() { m.of.Listening(on) })
	}
}

// Ready implements [wakeup.Subscription].
func (m *wakeMember) Ready(ready bool) {
	b := m.broker
	b.mu.Lock()
	m.asked++
	asked := m.asked
	if !ready {
		m.ready = false
	}
	b.mu.Unlock()
	if !ready {
		return
	}
	b.after(20*time.Millisecond, m.process.plan.name+" ready "+str(asked), func() {
		b.mu.Lock()
		m.ready = m.asked == asked
		tell := m.ready && m.connected
		b.mu.Unlock()
		if tell {
			m.call(func() { m.of.Listening(true) })
		}
	})
}

// More implements [wakeup.Subscription]. A dead process sends nothing.
func (m *wakeMember) More() {
	if m.process.isDead() {
		return
	}
	m.broker.mu.Lock()
	m.more++
	name := m.process.plan.name + " more " + str(m.more)
	m.broker.mu.Unlock()
	m.broker.after(20*time.Millisecond, name, func() { m.broker.deliver(jobs, time.Time{}, m, name) })
}

// Close implements [wakeup.Subscription].
func (m *wakeMember) Close() error {
	m.turn.Lock()
	m.closed = true
	m.turn.Unlock()
	return nil
}

// checkIdle watches workers that have nothing to do for a while: those with wake-ups send nothing but
// safety polls.
func (w *world) checkIdle(alive []*process) {
	const intervals = 10
	if !w.plan.wakes.on || len(w.left) > 0 {
		return
	}
	time.Sleep(2 * w.plan.wakes.safety)
	w.updateLeft()
	begin := w.now()
	time.Sleep(intervals * w.plan.wakes.safety)
	polls := make(map[string]int)
	w.history.mu.Lock()
	for _, e := range w.history.entries {
		if e.kind == polled && e.at >= begin {
			polls[e.who]++
		}
	}
	w.history.mu.Unlock()
	for _, p := range alive {
		if s := p.plan.settled(); s.minLoops() > 0 || s.hook {
			continue
		}
		st := p.listener.State()
		if n := polls[p.plan.name]; n > intervals || st.Loops > 1 || !st.Listening {
			w.addViolation("%s polled %d times in %d safety intervals without work, with %d loops, listening %v", p.plan.name, n, intervals, st.Loops, st.Listening)
		}
	}
}

// subscriber has the functions that Subscribe was called with.
type subscriber struct {
	Event     func(q queue.Name, bytes int64, due time.Time)
	Listening func(bool)
}

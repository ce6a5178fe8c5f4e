package simulation

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/queuemetadata"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// pausesPlan is when the workers of a world are paused. The zero value is never.
type pausesPlan struct {
	on    bool
	fleet []span // by the flag in the metadata of the queue
}

// span is a time from an instant on.
type span struct{ from, long time.Duration }

func (s span) end() time.Duration { return s.from + s.long }

// drawPauses draws the pauses of a world. All end before its calm.
func (p *plan) drawPauses() {
	d := p.dice
	if p.pauses.on = d.chance(0.15, "pauses"); !p.pauses.on {
		return
	}
	p.pauses.fleet = p.spans(d.number(0, 2, "pauses", "fleet"), 5*time.Second, "pauses of the fleet")
}

// spans draws pauses that do not overlap, of that time at least.
func (p *plan) spans(n int, least time.Duration, about string) (all []span) {
	at := time.Millisecond
	for i := range n {
		one := span{from: p.dice.within(at, p.horizon, about, str(i), "from"), long: p.dice.steep(least, 5*time.Minute, about, str(i), "long")}
		one.long = min(one.long, p.horizon-time.Millisecond-one.from)
		if one.long < time.Millisecond {
			break
		}
		all = append(all, one)
		at = one.end() + time.Millisecond
	}
	return all
}

// programPauses draws when the program of a worker pauses its listener.
func (p *plan) programPauses(about string) []span {
	if !p.pauses.on {
		return nil
	}
	return p.spans(p.dice.number(0, 2, about, "pauses"), 10*time.Millisecond, about+" pauses")
}

// pausesManyLoops reports whether several loops may go on at the instant at which a pause ends.
func (p *plan) pausesManyLoops() bool { return p.pauses.on && p.manyLoops }

// pauseFleet sets and removes the flag in the metadata of the queue. A queue that was deleted has none.
func (w *world) pauseFleet() {
	ctx, q := context.Background(), w.engine.Queue(jobs)
	change := func(at time.Duration, metadata map[string]string) {
		time.Sleep(at - w.now())
		if err := q.SetMetadata(ctx, metadata); err != nil && !errors.Is(err, queue.ErrQueueMissing) {
			w.addViolation("pause the fleet: %v", err)
		}
	}
	for _, s := range w.plan.pauses.fleet {
		flag := make(map[string]string)
		queuemetadata.SetPaused(flag, time.Now())
		change(s.from, flag)
		change(s.end(), nil)
	}
}

// pauseProgram pauses and resumes the listener. It must be called before the listener runs.
func (p *process) pauseProgram() {
	w := p.world
	for _, s := range p.plan.pauses {
		pause := func() {
			p.note(entry{kind: pausing})
			w.breakage.pause(p.listener)
		}
		resume := func() {
			p.note(entry{kind: resuming})
			p.listener.Resume()
		}
		switch now := w.now(); {
		case s.end() <= now:
			continue
		case s.from <= now: // it starts paused
			pause()
		default:
			time.AfterFunc(s.from-now, pause)
		}
		time.AfterFunc(s.end()-w.now(), resume)
	}
}

// note records an event of a process that lives.
func (p *process) note(e entry) {
	if e.who = p.plan.name; !p.isDead() {
		p.world.history.note(e)
	}
}

// witness records what a listener asks its queue for, and when it learns of a flag. It is between the
// listener and everything else, so that no time passes between its decision and the record.
type witness struct {
	queue.Queue
	process *process

	mu       sync.Mutex
	readings int // guarded by mu
}

func (q *witness) EmptyAfter() int { return driver.EmptyAfter(q.Queue) }

func (q *witness) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	q.process.note(entry{kind: asking, n: n})
	batch, err := q.Queue.Dequeue(ctx, n, visibility)
	if len(batch) > 0 {
		q.process.note(entry{kind: receiving, n: len(batch)})
	}
	return batch, err
}

func (q *witness) Properties(ctx context.Context) (queue.Properties, error) {
	q.mu.Lock()
	q.readings++
	e := entry{kind: reading, n: q.readings}
	q.mu.Unlock()
	q.process.note(e)
	p, err := q.Queue.Properties(ctx)
	e.kind, e.outcome = read, outcomeOf(err)
	if _, paused := queuemetadata.Paused(p.Metadata); err == nil && paused {
		e.outcome = sawFlag
	}
	q.process.note(e)
	return p, err
}

// sawFlag is the outcome of a reading that found the flag.
const sawFlag = "the flag is set"

// Times of the library that are not options.
const (
	flagInterval = time.Minute                    // between readings of the flag
	maxFlagPause = flagInterval + flagInterval/10 // the same in a pause, with its spread
	maxReading   = 10 * time.Second               // until a reading has its response, without faults
	beside       = time.Millisecond               // in which hooks yield
)

// pauseState is what a worker knows of pauses.
type pauseState struct {
	program, flag bool
	since         time.Duration // of either; of the later one
	applied       int           // the reading that the flag is from
	asked         time.Duration // when the last reading began
	anyReading    bool
	alone         bool // since the last reading began the flag alone has paused it
	fetched       *entry
}

func (s *pauseState) paused() bool { return s.program || s.flag }

// checkPause checks what a worker does in pauses, and that it reads the flag.
func (b *ledger) checkPause(s *worker, e entry) {
	p := &s.pause
	b.checkReading(s, e)
	switch e.kind {
	case pausing:
		p.program, p.since, p.alone, p.fetched = true, e.at, false, nil
	case resuming:
		p.program, p.alone = false, false
	case stopping, died:
		p.fetched = nil
		s.ending = true
	case asking:
		if p.paused() && e.at > p.since {
			b.addViolation(e, "a dequeue in a pause that began at %v, by the program %v, by the flag %v", p.since, p.program, p.flag)
		}
	case receiving:
		if !p.paused() && !s.ending && (!p.anyReading || e.at-p.asked >= flagInterval) {
			p.fetched = &e
		}
	case reading:
		if p.alone && e.at-p.asked < flagInterval {
			b.addViolation(e, "a reading of the flag in a pause, %v after the last one", e.at-p.asked)
		}
		if p.program && e.at > p.since && !p.flag {
			b.addViolation(e, "a reading in a pause by the program that began at %v", p.since)
		}
		p.asked, p.anyReading, p.fetched = e.at, true, nil
		p.alone = p.flag && !p.program
	case read:
		b.applyReading(s, e)
	}
}

// checkReading checks that a reading has begun beside the last dequeue that needs one.
func (b *ledger) checkReading(s *worker, e entry) {
	if f := s.pause.fetched; f != nil && e.at > f.at+beside {
		b.addViolation(*f, "messages were received, and the metadata were not read within %v before it, nor beside it", flagInterval)
		s.pause.fetched = nil
	}
}

// applyReading applies the response to a reading as a worker must.
func (b *ledger) applyReading(s *worker, e entry) {
	p := &s.pause
	known := e.outcome == "" || e.outcome == sawFlag || e.outcome == queue.ErrQueueMissing.Error()
	if !known || e.n < p.applied || s.ending {
		return
	}
	p.applied = e.n
	if flag := e.outcome == sawFlag; flag != p.flag {
		p.flag, p.alone = flag, false
		if flag {
			p.since, p.fetched = e.at, nil
		}
	}
}

// flagEnds returns how long after the end of a fleet pause its workers may go on.
func (p *plan) flagEnds() time.Duration {
	if len(p.pauses.fleet) == 0 {
		return 0
	}
	return maxFlagPause + maxReading
}

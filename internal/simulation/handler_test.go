package simulation

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
)

// job is what is sent. Step is how far it has come, as its handler has saved it.
type job struct {
	N, Try int
	Step   int    `json:",omitempty"`
	Pad    string `json:",omitempty"`
}

// The results of a run, as the history has them. A failure has its error after it.
const (
	didSucceed = "succeeded"
	didFail    = "failed"
	didPoison  = "poisoned"
	didDiscard = "discarded"
	didSnooze  = "snoozed"
	didNothing = "not begun" // the job was never looked at: its batch did not begin
)

var (
	errBroken = errors.New("the job is broken")
	errOutage = errors.New("the database is away")
)

// careless is an error of the kind that is returned as a nil pointer by mistake.
type careless struct{ text string }

func (e *careless) Error() string { return e.text }

// handling is one run of a handler with one message.
type handling struct {
	*process
	ctx     context.Context
	message *listener.Message[job]
	job     jobPlan
	n       int // runs of the message before this one, wherever

	said string        // the result, as the history has it
	err  error         // what is returned
	cut  bool          // the context ended first
	at   time.Duration // when it began
	last func()        // panics, or ends the goroutine; nil for neither
}

// handle does what the plan of the job says. It never takes no time at all: what
// happens at one instant happens in any order.
func (p *process) handle(ctx context.Context, m *listener.Message[job]) error {
	r := p.begin(ctx, m)
	defer r.end()
	time.Sleep(r.within(1, 10*time.Millisecond, "begin"))
	if p.together != nil {
		p.parts.Store(m, r)
		defer time.Sleep(r.within(1, 10*time.Millisecond, "apart")) // its slot is free at an instant of its own
		return p.together(ctx, m)
	}
	r.work()
	if p.isDead() {
		return errBroken // a dead process has no results
	}
	if r.last != nil {
		r.last()
	}
	return r.err
}

// begin writes down that a run begins, and when its context ends.
func (p *process) begin(ctx context.Context, m *listener.Message[job]) *handling {
	w := p.world
	r := &handling{process: p, ctx: ctx, message: m, job: w.job(m.Body.N), n: w.run(m.ID), at: w.now(), said: didNothing}
	w.history.note(entry{kind: began, who: p.plan.name, id: m.ID, count: m.DequeueCount, n: m.Attempt})
	w.running.Add(1)
	context.AfterFunc(ctx, func() {
		// At the end of a run it is ended by its dispatcher, which is no news.
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !p.isDead() {
			w.history.note(entry{kind: cutOff, who: p.plan.name, id: m.ID, count: m.DequeueCount, said: cause.Error()})
		}
	})
	return r
}

// end writes down how it ended.
func (r *handling) end() {
	defer r.world.running.Done()
	if r.isDead() {
		return
	}
	r.longest.Store(max(r.longest.Load(), int64(r.world.now()-r.at))) // no two runs end at one instant
	full := r.said
	if r.err != nil {
		full += ": " + text(r.err)
	}
	if r.cut {
		full += " (cut off: " + context.Cause(r.ctx).Error() + ")"
	}
	r.world.history.note(entry{kind: ended, who: r.plan.name, id: r.message.ID, count: r.message.DequeueCount, said: full})
}

// text is the text of an error, also of one that has none.
func text(err error) string {
	if e, is := err.(*careless); is && e == nil { //nolint:errorlint // that very value, not one wrapped
		return "a typed nil"
	}
	return err.Error()
}

// within draws a time about the run.
func (r *handling) within(least, most time.Duration, about string) time.Duration {
	return r.world.plan.dice.within(least, most, "run", string(r.message.ID), str(r.n), about)
}

// work takes the time of the run, in portions after each of which it saves, and draws the
// result.
func (r *handling) work() {
	if o := r.world.plan.outage; o.covers(r.world.now()) {
		r.waitForTheDatabase(o)
		return
	}
	j := r.job
	portion := r.within(j.shortest, j.longest, "length") / time.Duration(j.saves+1)
	for i := range j.saves + 1 {
		if r.cut = r.spend(r.ctx, portion, j.heedless); r.cut {
			time.Sleep(j.cleaning)
			break
		}
		if i < j.saves && r.save() {
			break
		}
	}
	r.decide()
}

// waitForTheDatabase is what a run comes to that cannot do without it, alone or together with
// the others of its batch.
func (r *handling) waitForTheDatabase(o outagePlan, others ...*handling) {
	if r.world.now() >= o.from+o.hangsAfter && r.world.plan.dice.chance(o.hangs, "outage", string(r.message.ID), str(r.n)) {
		for _, one := range append(others, r) {
			r.world.hang(r.process, one.message.ID, o.hanging)
		}
		r.spend(r.ctx, o.hanging, true)
	} else {
		r.spend(r.ctx, r.within(1, time.Second, "outage"), true)
	}
	r.said, r.err = didFail, errOutage
}

// decide draws the result of a run that has taken its time.
func (r *handling) decide() {
	switch {
	case r.err != nil: // a save told it that the message is lost
	case r.cut && r.job.stubborn:
		r.said = didSucceed
	case r.cut:
		r.said, r.err = didFail, context.Cause(r.ctx)
	default:
		r.said, r.err = result(r.job, r.n, r.within(0, 30*time.Second, "delay"))
		if r.said != didFail {
			return
		}
		switch r.job.manner {
		case panics:
			r.last = func() { panic(r.err) }
		case exits:
			r.last = runtime.Goexit
		}
	}
}

// spend lets time pass, and tells whether the context ended first.
func (r *handling) spend(ctx context.Context, long time.Duration, heedless bool) (cut bool) {
	t := time.NewTimer(max(long, 1))
	defer t.Stop()
	over := ctx.Done()
	if heedless {
		over = nil
	}
	select {
	case <-t.C:
		return false
	case <-r.wire.Died():
		return false
	case <-over:
		// The contexts of a whole batch end at one instant; nobody notices at the same.
		time.Sleep(r.within(0, 10*time.Millisecond, "heeding"))
		return true
	}
}

// save saves how far the job has come, and tells whether the message is somebody else's.
func (r *handling) save() (lost bool) {
	if r.isDead() {
		return true
	}
	next, w := r.message.Body, r.world
	next.Step++
	body, _ := codec.JSON[job]().Encode(next)
	e := entry{kind: saving, who: r.plan.name, id: r.message.ID, count: r.message.DequeueCount, n: next.Step, text: string(body)}
	w.history.note(e)
	err := r.message.Save(r.ctx, next)
	if r.isDead() {
		return true
	}
	e.kind, e.said = saved, said(err)
	w.history.note(e)
	if lost = errors.Is(err, dispatcher.ErrLeaseLost); lost {
		r.said, r.err, r.cut = didFail, dispatcher.ErrLeaseLost, r.ctx.Err() != nil // err has the request id
	}
	return lost
}

// result is what a run that was not cut off says.
func result(j jobPlan, run int, delay time.Duration) (string, error) {
	if j.atOnce {
		delay = 0
	}
	switch again := run < j.times; {
	case j.manner == never, again && (j.manner == fails || j.manner == panics || j.manner == exits):
		return didFail, j.says(run)
	case again && j.manner == typedNil:
		return didFail, (*careless)(nil)
	case j.manner == poisons:
		return didPoison, dispatcher.Poison(j.says(run))
	case j.manner == discards:
		return didDiscard, dispatcher.Discard(j.says(run))
	case again && j.manner == retries:
		return didFail, dispatcher.Retry(delay, j.says(run))
	case again && j.manner == snoozes:
		return didSnooze, dispatcher.Snooze(delay)
	}
	return didSucceed, nil
}

// reader is the codec of a process. What it cannot read takes it a moment, as a
// handler does.
type reader struct{ *process }

func (r reader) Encode(v job) ([]byte, error) { return codec.JSON[job]().Encode(v) }

func (r reader) Decode(body []byte) (job, error) {
	v, err := codec.JSON[job]().Decode(body)
	var bad manner
	if err == nil {
		bad = r.world.job(v.N).undecoded
	}
	if err != nil || bad != "" {
		time.Sleep(r.world.plan.dice.within(1, 10*time.Millisecond, "decode", string(body)))
	}
	switch bad {
	case panics:
		panic(fmt.Sprintf("the codec cannot read job %d", v.N))
	case exits:
		runtime.Goexit()
	}
	return v, err
}

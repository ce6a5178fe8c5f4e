package simulation

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/listener"
)

// job is the body of a message. Step is its saved progress.
type job struct {
	N, Try int
	Step   int    `json:",omitempty"`
	Pad    string `json:",omitempty"`
}

// The results of a run in the history. The error of a failure follows.
const (
	didSucceed = "succeeded"
	didFail    = "failed"
	didPoison  = "poisoned"
	didDiscard = "discarded"
	didSnooze  = "snoozed"
	didExhaust = "exhausted" // its dependency, and is postponed
	didNothing = "not begun" // its batch did not begin
)

var (
	errBroken = errors.New("the job is broken")
	errOutage = errors.New("the database is away")
)

// careless is an error whose nil pointer is returned by mistake.
type careless struct{ text string }

func (e *careless) Error() string { return e.text }

// handling is one run of a handler with one message.
type handling struct {
	*process
	ctx     context.Context
	message *listener.Message[job]
	subject string // of its random decisions: the message, or the item of a group
	job     jobPlan
	n       int // earlier runs of the subject, of all workers

	outcome string        // the result, as the history has it
	err     error         // what is returned
	cut     bool          // the context ended first
	at      time.Duration // when it began
	last    func()        // panics, or ends the goroutine; nil for neither
}

// handle does what the plan of the job says. It always takes some time, because events at the same
// instant have no order.
func (p *process) handle(ctx context.Context, m *listener.Message[job]) error {
	if p.world.job(m.Body.N).items != nil {
		return p.handleGroup(ctx, m)
	}
	r := p.begin(ctx, m)
	defer r.end()
	time.Sleep(r.within(1, 10*time.Millisecond, "begin"))
	if p.together != nil {
		p.parts.Store(m, r)
		defer time.Sleep(r.within(1, 10*time.Millisecond, "apart")) // so that slots become free at different instants
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

// begin records the begin of a run, and the end of its context.
func (p *process) begin(ctx context.Context, m *listener.Message[job]) *handling {
	w := p.world
	r := &handling{process: p, ctx: ctx, message: m, subject: string(m.ID), job: w.job(m.Body.N), at: w.now(), outcome: didNothing}
	if !p.isDead() { // a batch that waited for the flag goes on when the wire is cut
		r.n = w.run(m.ID)
		w.history.note(entry{kind: began, who: p.plan.name, id: m.ID, count: m.DequeueCount, n: m.Attempt})
	}
	w.running.Add(1)
	context.AfterFunc(ctx, func() {
		// The dispatcher cancels it at the end of a run, which is not recorded.
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !p.isDead() {
			w.history.note(entry{kind: cutOff, who: p.plan.name, id: m.ID, count: m.DequeueCount, outcome: cause.Error()})
		}
	})
	return r
}

// end records the result of a run.
func (r *handling) end() {
	defer r.world.running.Done()
	if r.isDead() {
		return
	}
	r.longest.Store(max(r.longest.Load(), int64(r.world.now()-r.at))) // no two runs end at one instant
	r.world.history.note(entry{kind: ended, who: r.plan.name, id: r.message.ID, count: r.message.DequeueCount, outcome: r.result()})
}

// result returns the result of a run as the history has it.
func (r *handling) result() string {
	full := r.outcome
	if r.err != nil {
		full += ": " + text(r.err)
	}
	if r.cut {
		full += " (cut off: " + context.Cause(r.ctx).Error() + ")"
	}
	return full
}

// text returns the text of an error, also of a typed nil.
func text(err error) string {
	if e, is := err.(*careless); is && e == nil { //nolint:errorlint // that very value, not one wrapped
		return "a typed nil"
	}
	return err.Error()
}

// within draws a duration of the run.
func (r *handling) within(least, most time.Duration, about string) time.Duration {
	return r.world.plan.dice.within(least, most, "run", r.subject, str(r.n), about)
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

// waitForTheDatabase is a run during an outage, alone or with the others of its batch: it hangs, or
// fails soon.
func (r *handling) waitForTheDatabase(o outagePlan, others ...*handling) {
	if r.world.now() >= o.from+o.hangsAfter && r.world.plan.dice.chance(o.hangs, "outage", string(r.message.ID), str(r.n)) {
		for _, one := range append(others, r) {
			r.world.hang(r.process, one.message.ID, o.hanging)
		}
		r.spend(r.ctx, o.hanging, true)
	} else {
		r.spend(r.ctx, r.within(1, time.Second, "outage"), true)
	}
	r.outcome, r.err = didFail, errOutage
}

// decide sets the result at the end of a run.
func (r *handling) decide() {
	switch {
	case r.err != nil: // a save found the lease lost
	case r.cut && r.job.stubborn:
		r.outcome = didSucceed
	case r.cut:
		r.outcome, r.err = didFail, context.Cause(r.ctx)
	case r.exhausts():
		r.outcome, r.err = didExhaust, slots.Exhausted(errRefused)
	default:
		r.outcome, r.err = result(r.job, r.n, r.within(0, 30*time.Second, "delay"))
		if r.outcome != didFail {
			return
		}
		switch r.job.behaviour {
		case panics:
			r.last = func() { panic(r.err) }
		case exits:
			r.last = runtime.Goexit
		}
	}
}

// spend lets time pass, and reports whether the context ended first.
func (r *handling) spend(ctx context.Context, long time.Duration, heedless bool) (cut bool) {
	defer r.thaw()
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
		// The contexts of a whole batch end at the same instant; the handlers react at different ones.
		time.Sleep(r.within(0, 10*time.Millisecond, "heeding"))
		return true
	}
}

// save saves the progress of the job, and reports whether the lease is lost.
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
	e.kind, e.outcome = saved, outcomeOf(err)
	w.history.note(e)
	if lost = errors.Is(err, dispatcher.ErrLeaseLost); lost {
		r.outcome, r.err, r.cut = didFail, dispatcher.ErrLeaseLost, r.ctx.Err() != nil // err has the request id
	}
	return lost
}

// result returns the result of a run that was not cut off.
func result(j jobPlan, run int, delay time.Duration) (string, error) {
	if j.atOnce {
		delay = 0
	}
	switch again := run < j.times; {
	case j.behaviour == never, again && (j.behaviour == fails || j.behaviour == panics || j.behaviour == exits):
		return didFail, j.failure(run)
	case again && j.behaviour == typedNil:
		return didFail, (*careless)(nil)
	case j.behaviour == poisons:
		return didPoison, dispatcher.Poison(j.failure(run))
	case j.behaviour == discards:
		return didDiscard, dispatcher.Discard(j.failure(run))
	case again && j.behaviour == retries:
		return didFail, dispatcher.Retry(delay, j.failure(run))
	case again && j.behaviour == snoozes:
		return didSnooze, dispatcher.Snooze(delay)
	}
	return didSucceed, nil
}

// reader is the codec of a process. It takes some time to fail, as a handler does.
type reader struct{ *process }

func (r reader) Encode(v job) ([]byte, error) { return codec.JSON[job]().Encode(v) }

func (r reader) Decode(body []byte) (job, error) {
	v, err := codec.JSON[job]().Decode(body)
	bad := err == nil && r.world.job(v.N).undecoded
	if err != nil || bad {
		time.Sleep(r.world.plan.dice.within(1, 10*time.Millisecond, "decode", string(body)))
	}
	if bad {
		panic(fmt.Sprintf("the codec cannot read job %d", v.N))
	}
	return v, err
}

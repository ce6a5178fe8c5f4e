package simulation

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
)

// job is what is sent.
type job struct{ N, Try int }

// The results of a run, as the history has them. A failure has its error after it.
const (
	didSucceed = "succeeded"
	didFail    = "failed"
	didPoison  = "poisoned"
	didDiscard = "discarded"
	didSnooze  = "snoozed"
)

var errBroken = errors.New("the job is broken")

// handle does what the plan of the job says. It never takes no time at all: what
// happens at one instant happens in any order.
func (p *process) handle(ctx context.Context, m *listener.Message[job]) error {
	w := p.world
	run := w.run(m.ID)
	w.history.note(entry{kind: began, who: p.plan.name, id: m.ID, count: m.DequeueCount, n: m.Attempt})
	w.running.Add(1)
	defer w.running.Done()

	time.Sleep(w.plan.dice.within(1, 10*time.Millisecond, "begin", string(m.ID), str(run)))
	j := w.plan.jobs[m.Body.N]
	about := []string{"run", string(m.ID), str(run)}
	cut := p.spend(ctx, j, w.plan.dice.within(j.shortest, j.longest, about...), w.plan.dice.within(0, 10*time.Millisecond, append(about, "heeding")...))
	said, err := didFail, error(nil)
	switch {
	case cut && j.stubborn:
		said = didSucceed
	case cut:
		err = context.Cause(ctx)
	default:
		said, err = result(j, run, w.plan.dice.within(0, 30*time.Second, append(about, "delay")...))
	}
	if p.isDead() {
		return errBroken // a dead process has no results
	}
	full := said
	if err != nil {
		full += ": " + err.Error()
	}
	if cut {
		full += " (cut off: " + context.Cause(ctx).Error() + ")"
	}
	w.history.note(entry{kind: ended, who: p.plan.name, id: m.ID, count: m.DequeueCount, said: full})
	if said == didFail && !cut {
		switch j.manner {
		case panics:
			panic(err)
		case exits:
			runtime.Goexit()
		}
	}
	return err
}

// spend lets the time of a run pass, and tells whether its context ended first.
func (p *process) spend(ctx context.Context, j jobPlan, long, heeding time.Duration) (cut bool) {
	t := time.NewTimer(max(long, 1))
	defer t.Stop()
	over := ctx.Done()
	if j.heedless {
		over = nil
	}
	select {
	case <-t.C:
		return false
	case <-p.wire.Died():
		return false
	case <-over:
		// The contexts of a whole batch end at one instant; nobody notices at the same.
		time.Sleep(heeding)
		return true
	}
}

// result is what a run that was not cut off says.
func result(j jobPlan, run int, delay time.Duration) (string, error) {
	switch again := run < j.times; {
	case j.manner == never, again && (j.manner == fails || j.manner == panics || j.manner == exits):
		return didFail, fmt.Errorf("run %d: %w", run, errBroken)
	case j.manner == poisons:
		return didPoison, dispatcher.Poison(errBroken)
	case j.manner == discards:
		return didDiscard, dispatcher.Discard(errBroken)
	case again && j.manner == retries:
		return didFail, dispatcher.Retry(delay, errBroken)
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
	if err != nil {
		time.Sleep(r.world.plan.dice.within(1, 10*time.Millisecond, "decode", string(body)))
	}
	return v, err
}

// text is what the message of a job carries. It is another one with every try, so that
// a bare copy in the poison queue tells whose it is.
func (j jobPlan) text(at time.Time, try int) string {
	body := fmt.Sprintf(`{"N":%d,"Try":%d}`, j.n, try)
	sealed, err := codec.Seal(codec.Head{ID: "job-" + str(j.n), Enqueued: at}, []byte(body), codec.Envelope)
	if err != nil {
		panic(err)
	}
	switch j.form {
	case foreign:
		return body
	case base64ed:
		coded, _ := codec.Seal(codec.Head{}, []byte(body), codec.Base64)
		return coded
	case junk:
		return "no job but " + body
	case broken:
		return "millrace/1?n=many\n" + body
	case newer:
		return strings.Replace(sealed, "millrace/1", "millrace/2", 1)
	}
	return sealed
}

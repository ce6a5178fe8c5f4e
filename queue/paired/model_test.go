package paired_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/paired"
)

// model is what a paired queue should do, for sends one after the other and a primary queue that answers at once.
type model struct {
	interval, probe time.Duration

	status  paired.Status
	onTrial bool
	first   time.Time // failure of the row
	next    time.Time // probe

	failures, failovers, diverted, maybeTwice, refused, probes int64
}

// answer is what the primary queue says to a send.
type answer int

const (
	ok answer = iota
	isUnavailable
	isUnknown
	isUnauthorized
	isTooLarge
)

var answers = map[answer]error{
	ok: nil, isUnavailable: unavailable, isUnknown: unknown, isUnauthorized: unauthorized,
	isTooLarge: &queue.Error{Kind: queue.ErrTooLarge, Status: 413},
}

// readings lets the readings happen that are due, with a primary queue that may be read or not.
func (m *model) readings(readable bool) {
	for m.status == paired.FailedOver && !time.Now().Before(m.next.Add(m.probe)) {
		at := m.next.Add(m.probe)
		m.probes++
		m.next = at.Add(m.probe)
		if readable {
			m.status, m.onTrial, m.failures = paired.Healthy, true, 0
		}
	}
}

// send returns where a message goes, "" if to nobody.
func (m *model) send(a answer, secondary bool) string {
	now := time.Now()
	tries := m.status != paired.FailedOver
	if m.status == paired.FailedOver && !now.Before(m.next) {
		tries = true
		m.probes++
		if a != isTooLarge {
			m.next = now.Add(m.probe)
		}
	}
	if tries {
		switch a {
		case ok:
			m.status, m.onTrial, m.failures = paired.Healthy, false, 0
			return "west"
		case isTooLarge:
			return ""
		case isUnavailable, isUnknown:
			m.fail(now)
		}
	}
	switch {
	case m.status != paired.FailedOver:
		return ""
	case !secondary:
		m.refused++
		return ""
	}
	m.diverted++
	if tries && a == isUnknown {
		m.maybeTwice++
	}
	return "east"
}

func (m *model) fail(now time.Time) {
	if m.status == paired.FailedOver {
		return
	}
	if m.status == paired.Healthy {
		m.status, m.first = paired.Failing, now
	}
	m.failures++
	if m.interval < 0 || m.onTrial || now.Sub(m.first) >= m.interval {
		m.status, m.next = paired.FailedOver, now.Add(m.probe)
		m.failovers++
	}
}

// whatever the primary queue answers and however much time passes, each message goes where the
// model says, and the state is that of the model.
func TestSendsFollowTheModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		interval := rapid.SampledFrom([]time.Duration{-1, time.Second, 10 * time.Second, time.Minute}).Draw(rt, "interval")
		probe := rapid.SampledFrom([]time.Duration{time.Second, 30 * time.Second}).Draw(rt, "probe")
		type step struct {
			answer    answer
			wait      time.Duration
			readable  bool
			secondary bool
		}
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				rapid.SampledFrom([]answer{ok, isUnavailable, isUnavailable, isUnavailable, isUnknown, isUnauthorized, isTooLarge}).Draw(rt, "answer"),
				rapid.SampledFrom([]time.Duration{0, 1, time.Second - 1, time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute - 1, time.Hour}).Draw(rt, "wait"),
				rapid.Bool().Draw(rt, "readable"),
				rapid.IntRange(0, 4).Draw(rt, "secondary") > 0,
			}
		}), 1, 40).Draw(rt, "steps")
		var wrong string
		synctest.Test(t, func(t *testing.T) {
			m := model{interval: interval, probe: probe}
			b := setup(t, paired.Options{FailoverInterval: interval, ProbeInterval: probe, Backlogs: 2})
			for i, s := range steps {
				f := fault{err: answers[s.answer]}
				if !s.readable {
					f.reads = unavailable
				}
				b.west.fault("orders", f)
				b.east.fault("", fault{})
				if !s.secondary {
					b.east.fault("", fault{err: unavailable})
				}
				time.Sleep(s.wait)
				synctest.Wait()
				m.readings(s.readable)
				got, err := b.queue.Enqueue(b.ctx, "text", nil)
				want := m.send(s.answer, s.secondary)
				st := b.queue.State()
				switch {
				case got.Queue.Account != want || (err == nil) != (want != ""):
					wrong = fmt.Sprintf("the message went to %q with %v, want %q", got.Queue.Account, err, want)
				case err != nil && m.status != paired.FailedOver && !errors.Is(err, answers[s.answer]):
					wrong = fmt.Sprintf("got %v, want what the primary queue said", err)
				case st.Status != m.status || st.Failures != m.failures || st.Failovers != m.failovers || st.Diverted != m.diverted ||
					st.MaybeTwice != m.maybeTwice || st.Refused != m.refused || st.Probes != m.probes:
					wrong = fmt.Sprintf("got %+v, want %+v", st, m)
				}
				if wrong != "" {
					wrong = fmt.Sprintf("step %d, %+v: %s", i, s, wrong)
					break
				}
			}
			b.queue.Close()
		})
		if wrong != "" {
			rt.Fatal(wrong)
		}
	})
}

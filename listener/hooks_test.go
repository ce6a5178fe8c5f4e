package listener

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// faults are the ways in which a user function can fail to return.
var faults = map[string]func(){
	"panic":       func() { panic("the hook broke") },
	"nil pointer": func() { var m *Message[job]; m.Attempt++ },
}

// eachFault runs a test for each of the faults, in a bubble of its own.
func eachFault(t *testing.T, f func(b *bundle, fail func())) {
	t.Helper()
	for name, fail := range faults {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bundle) { f(b, fail) })
		})
	}
}

// brokenHandler is a slog.Handler that fails.
type brokenHandler struct{ enabled, handle func() }

func (h brokenHandler) Enabled(context.Context, slog.Level) bool  { h.enabled(); return true }
func (h brokenHandler) Handle(context.Context, slog.Record) error { h.handle(); return nil }
func (h brokenHandler) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h brokenHandler) WithGroup(string) slog.Handler             { return h }

// brokenCodec fails to encode or decode some jobs.
type brokenCodec struct {
	codec.Codec[job]
	encode, decode func(n int)
}

func (c brokenCodec) Encode(j job) ([]byte, error) { c.encode(j.N); return c.Codec.Encode(j) }
func (c brokenCodec) Decode(body []byte) (job, error) {
	j, err := c.Codec.Decode(body)
	c.decode(j.N)
	return j, err
}

func succeeds() {}

// hooks sets, by name, every hook of a listener except the handler and the codec to a function
// that calls fail.
var hooks = map[string]func(o *Options[job], fail func()){
	"Observer.Polled":   func(o *Options[job], fail func()) { o.Observer.Polled = func(Poll) { fail() } },
	"Observer.Received": func(o *Options[job], fail func()) { o.Observer.Received = func([]queue.Message) { fail() } },
	"Observer.Scaled":   func(o *Options[job], fail func()) { o.Observer.Scaled = func(queue.Name, int) { fail() } },
	"Observer.Started":  func(o *Options[job], fail func()) { o.Observer.Started = func(dispatcher.Delivery) { fail() } },
	"Observer.Finished": func(o *Options[job], fail func()) {
		o.Observer.Finished = func(dispatcher.Delivery, time.Duration, error) { fail() }
	},
	"Observer.Renewed": func(o *Options[job], fail func()) {
		o.Observer.Renewed = func(dispatcher.Delivery, time.Duration, error) { fail() }
	},
	"Observer.Lost": func(o *Options[job], fail func()) { o.Observer.Lost = func(dispatcher.Delivery, error) { fail() } },
	"Observer.Settled": func(o *Options[job], fail func()) {
		o.Observer.Settled = func(dispatcher.Delivery, dispatcher.Outcome, time.Duration) { fail() }
	},
	"Observer.Poisoned": func(o *Options[job], fail func()) {
		o.Observer.Poisoned = func(dispatcher.Delivery, poison.Reason, error) { fail() }
	},
	"RetryDelay": func(o *Options[job], fail func()) {
		o.RetryDelay = func(int, error) time.Duration { fail(); return 0 }
	},
	"QueueEmpty": func(o *Options[job], fail func()) {
		o.Fetch.QueueEmpty = func(int) (time.Duration, bool) { fail(); return 0, false }
	},
	"QueueWorkDetected": func(o *Options[job], fail func()) {
		o.Fetch.QueueWorkDetected = func(scaling.Load) int { fail(); return 0 }
	},
	"Idle.Curve": func(o *Options[job], fail func()) {
		o.Fetch.Idle.Curve = func(int) time.Duration { fail(); return time.Second }
	},
	"OnError": func(o *Options[job], fail func()) {
		report := o.OnError
		o.OnError = func(err error) { report(err); fail() }
	},
	"Logger": func(o *Options[job], fail func()) { o.Logger = slog.New(brokenHandler{succeeds, fail}) },
	"Logger, in Enabled": func(o *Options[job], fail func()) {
		o.Logger = slog.New(brokenHandler{fail, succeeds})
	},
}

// The jobs that do more than succeed in eventfulHandler.
const (
	firstFails = 100 + iota
	panicsOnce
	exitsOnce
	long
	longToo
	isPoison
)

// A hook that always fails stops nothing: its default decides, every message is handled and
// settled, the failure is reported with the name of the hook, and Run returns.
func TestAHookThatFailsDoesNotStopTheListener(t *testing.T) {
	silenceStderr(t)
	for name, set := range hooks {
		if testing.Short() && name != "Observer.Settled" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			eachFault(t, func(b *bundle, fail func()) { testBrokenHook(b, name, set, fail) })
		})
	}
}

func testBrokenHook(b *bundle, name string, set func(*Options[job], func()), fail func()) {
	const n = 40
	for i := range n {
		b.send(i)
	}
	b.loseOneLease()
	var calls atomic.Int64
	var reported errorList
	var log bytes.Buffer
	o := fixed(30 * time.Second)
	o.Concurrency, o.Fetch.BatchSize, o.Fetch.Loops.Max, o.Fetch.Loops.Pause = 4, 2, 2, -1
	o.Logger = textLogger(&log)
	o.OnError = reported.add
	var counts eventCounts
	counts.observe(&o.Observer)
	set(o, func() { calls.Add(1); fail() })
	l := New(b.queue, eventfulHandler, o)
	b.run(l)
	advance(time.Minute)
	for _, special := range []int{firstFails, panicsOnce, exitsOnce, long, longToo, isPoison} {
		b.send(special)
	}
	advance(5 * time.Minute)
	for i := range n { // more than there are slots: none is missing
		b.send(i)
	}
	advance(5 * time.Minute)
	if st := l.State(); st.Running != 0 || st.Settling != 0 || st.Loops < 1 {
		b.Errorf("got state %+v, want nothing running or settling and a loop", st)
	}
	b.mustFinish()
	if st := l.State(); st.Outcomes[Deleted] != 2*n+5 || st.Outcomes[Retried] != 3 || st.Outcomes[Lost] != 1 || st.Outcomes[Poisoned] != 1 || b.depth(b.queue.Queue) != 0 {
		b.Errorf("got %d messages left, state %+v; want the same as without the hook", b.depth(b.queue.Queue), st)
	}
	counts.check(b, name)
	if calls.Load() < 1 {
		b.Error("the hook was not called, so the test proves nothing")
	}
	hook, _, _ := strings.Cut(name, ",")
	if failure := reported.hook(hook); failure == nil && hook != "OnError" {
		b.Errorf("OnError: got no failure of %s, want one", hook)
	} else if failure != nil && !strings.Contains(string(failure.Stack), "hooks_test.go") {
		b.Errorf("got stack %s, want a frame in hooks_test.go", failure.Stack)
	}
	if hook != "Logger" && (!strings.Contains(log.String(), "hook "+hook+" failed") || !strings.Contains(log.String(), "hooks_test.go")) {
		b.Errorf("got log %s, want the failure of %s with its stack", log.String(), hook)
	}
}

// eventCounts counts the events that the working hooks received.
type eventCounts struct{ started, finished, settled, poisoned, lost atomic.Int64 }

func (n *eventCounts) observe(o *Observer) {
	o.Started = func(dispatcher.Delivery) { n.started.Add(1) }
	o.Finished = func(dispatcher.Delivery, time.Duration, error) { n.finished.Add(1) }
	o.Settled = func(dispatcher.Delivery, dispatcher.Outcome, time.Duration) { n.settled.Add(1) }
	o.Poisoned = func(dispatcher.Delivery, poison.Reason, error) { n.poisoned.Add(1) }
	o.Lost = func(dispatcher.Delivery, error) { n.lost.Add(1) }
}

// check checks that a failing hook does not keep others from being called.
func (n *eventCounts) check(b *bundle, failing string) {
	b.Helper()
	for name, c := range map[string]struct {
		calls *atomic.Int64
		want  int64
	}{
		"Observer.Started": {&n.started, 90}, "Observer.Finished": {&n.finished, 90}, "Observer.Settled": {&n.settled, 90},
		"Observer.Poisoned": {&n.poisoned, 1}, "Observer.Lost": {&n.lost, 1},
	} {
		if got := c.calls.Load(); name != failing && got != c.want {
			b.Errorf("calls of %s: got %d, want %d", name, got, c.want)
		}
	}
}

// eventfulHandler is a handler that causes every event that has a hook.
func eventfulHandler(ctx context.Context, m *Message[job]) error {
	switch m.Body.N {
	case firstFails:
		if m.Attempt == 1 {
			return errors.New("not yet")
		}
	case panicsOnce:
		if m.Attempt == 1 {
			panic("not yet")
		}
	case exitsOnce:
		if m.Attempt == 1 {
			runtime.Goexit()
		}
	case long, longToo:
		select {
		case <-time.After(20 * time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case isPoison:
		return dispatcher.Poison(errors.New("never"))
	}
	return nil
}

// loseOneLease makes the first renewal after 70 s find the lease lost.
func (b *bundle) loseOneLease() {
	var lost atomic.Bool
	b.queue.intercept = func(op string, act func() error) error {
		if op == "update" && time.Since(b.begin) > time.Minute+10*time.Second && lost.CompareAndSwap(false, true) {
			return queue.ErrReceiptMismatch
		}
		return act()
	}
}

// errorList records the errors that OnError received.
type errorList struct {
	mu   sync.Mutex
	list []error // guarded by mu
}

func (l *errorList) add(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, err)
}

func (l *errorList) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprint(l.list)
}

// hook returns the first failure of the hook, or nil.
func (l *errorList) hook(name string) *dispatcher.HookError {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, err := range l.list {
		if e := (*dispatcher.HookError)(nil); errors.As(err, &e) && e.Hook == name {
			return e
		}
	}
	return nil
}

// silenceStderr redirects standard error to a file and returns its name.
func silenceStderr(t *testing.T) (file string) {
	t.Helper()
	f, err := os.Create(t.TempDir() + "/stderr")
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stderr
	os.Stderr = f
	t.Cleanup(func() { os.Stderr = old; _ = f.Close() })
	return f.Name()
}

// A hook that fails at each renewal does not lose a lease.
func TestAHookThatFailsAtEachRenewalLosesNoLease(t *testing.T) {
	eachFault(t, func(b *bundle, fail func()) {
		b.put(1)
		o := fixed(10 * time.Second)
		o.Observer.Renewed = func(dispatcher.Delivery, time.Duration, error) { fail() }
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			select {
			case <-time.After(10 * time.Minute):
			case <-ctx.Done():
			}
			return context.Cause(ctx)
		}, o)
		b.run(l)
		advance(11 * time.Minute)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 1 || st.Renewed < 100 || st.Outcomes[Lost] != 0 {
			b.Errorf("got state %+v; want Succeeded 1, Renewed at least 100, Lost 0", st)
		}
	})
}

// Where a hook with a result fails, its default decides: the number of loops, and how long they
// wait.
func TestTheDefaultDecidesForAHookThatFails(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	for _, name := range []string{"QueueEmpty", "Idle.Curve"} {
		eachFault(t, func(b *bundle, fail func()) {
			o := options()
			hooks[name](o, fail)
			l := New(b.queue, nothing, o)
			b.run(l)
			advance(time.Hour)
			b.mustFinish()
			if n := l.State().Polls; n < 3200 || n > 3610 {
				b.Errorf("%s: got %d polls in an hour, want one every 1…1.1 s", name, n)
			}
		})
	}
	eachFault(t, func(b *bundle, fail func()) {
		b.put(2000)
		o := options()
		o.Fetch.Loops, o.Concurrency = Loops{Max: 4}, 128
		hooks["QueueWorkDetected"](o, fail)
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		if n := l.State().LoopsPeak; n != 4 {
			b.Errorf("loops for 2,000 messages: got %d, want 4", n)
		}
	})
}

// When both OnError and the log fail, standard error receives the failure, and they do not
// report each other endlessly.
func TestFailuresOfOnErrorAndLogGoToStandardError(t *testing.T) {
	file := silenceStderr(t)
	eachFault(t, func(b *bundle, fail func()) {
		b.send(firstFails)
		var calls atomic.Int64
		countAndFail := func() { calls.Add(1); fail() }
		o := options()
		o.OnError = func(error) { countAndFail() }
		o.Logger = slog.New(brokenHandler{succeeds, countAndFail})
		l := New(b.queue, eventfulHandler, o)
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 1 {
			b.Errorf("got state %+v; want Succeeded 1", st)
		}
		if n := calls.Load(); n < 2 || n > 15 {
			b.Errorf("calls for one failed attempt and two steps of its loop: got %d, want between 2 and 15", n)
		}
	})
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), "hook Logger of test/jobs") < len(faults) {
		t.Errorf("standard error: got %s (%v), want at least %d failures of the logger", text, err, len(faults))
	}
}

// A hook that fails for every message is reported at intervals, with a count.
func TestAFloodOfHookFailuresIsReportedAtIntervals(t *testing.T) {
	eachFault(t, func(b *bundle, fail func()) {
		const n = 500
		b.put(n)
		var reported errorList
		o := options()
		o.OnError = reported.add
		o.Observer.Settled = func(dispatcher.Delivery, dispatcher.Outcome, time.Duration) { fail() }
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(11 * time.Second)
		b.put(1)
		advance(2 * time.Second) // an idle loop sleeps for up to 1.1 s
		b.mustFinish()
		if len(reported.list) != 2 {
			b.Fatalf("reports: got %d, want 2", len(reported.list))
		}
		var e *dispatcher.HookError
		if !errors.As(reported.list[1], &e) || e.Times != n || !strings.Contains(e.Error(), "500 times") {
			b.Errorf("second report: got %v, want %d failures", reported.list[1], n)
		}
		if e.Times = 2; !strings.Contains(e.Error(), "2 times") {
			b.Errorf("two failures: got %v", e)
		}
	})
}

// A codec that panics is retried like a handler that panics. The message is poison after its last
// attempt, and its slot is free.
func TestACodecThatFailsFreesItsSlot(t *testing.T) {
	eachFault(t, func(b *bundle, fail func()) {
		for i := range 50 {
			b.send(i)
		}
		var reported errorList
		o := options()
		o.Concurrency = 4
		o.OnError = reported.add
		o.Codec = brokenCodec{codec.JSON[job](), nil, func(n int) {
			if n%2 == 0 {
				fail()
			}
		}}
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Minute)
		if st := l.State(); st.Running != 0 || st.Settling != 0 || st.Outcomes[Deleted] != 25 || st.Outcomes[Retried] < 25 || st.Outcomes[Poisoned] != 0 {
			b.Errorf("got state %+v; want Running 0, Settling 0, Succeeded 25, Poisoned 0, and the others retried", st)
		}
		advance(3 * time.Hour)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 25 || st.Outcomes[Poisoned] != 25 || b.depth(b.queue.Queue) != 0 {
			b.Errorf("got state %+v; want Succeeded 25, Poisoned 25, depth 0", st)
		}
		if e := reported.hook("Codec.Decode"); e == nil || !strings.Contains(string(e.Stack), "hooks_test.go") {
			b.Errorf("got errors %s, want one of Codec.Decode with a frame in hooks_test.go", reported.text())
		}
	})
}

// A release whose codec panics does not empty the queue into poison: the next one handles all jobs,
// in a group and alone.
func TestAReleaseWhoseCodecPanicsLosesNoJob(t *testing.T) {
	bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
		for i := range 50 {
			b.send(i)
		}
		b.putGroup(5)
		o := options()
		o.Concurrency = 16 // fewer than jobs, so that it can tell an outage from bad jobs
		o.Codec = brokenCodec{codec.JSON[job](), nil, func(int) { panic("a bug of this release") }}
		bad := New(b.queue, way(nothing), o)
		b.run(bad)
		advance(10 * time.Minute)
		b.mustFinish()
		b.Logf("the bad release: %d poisoned", bad.State().Outcomes[Poisoned])
		if st := bad.State(); st.Outcomes[Poisoned] != 0 || st.Outcomes[Deleted] != 0 {
			b.Errorf("the bad release: got state %+v; want nothing poisoned or handled", st)
		}
		good := New(b.queue, way(nothing), options())
		b.run(good)
		advance(2 * time.Hour)
		b.mustFinish()
		if st := good.State(); st.Outcomes[Deleted] != 51 || b.depth(b.queue.Queue) != 0 || b.poisonDepth() != 0 {
			b.Errorf("the next release: got state %+v; want 51 messages handled", st)
		}
	})
}

// A codec that fails while progress is saved fails only the attempt.
func TestACodecThatFailsInSaveFailsOnlyTheAttempt(t *testing.T) {
	eachFault(t, func(b *bundle, fail func()) {
		b.send(1)
		saved := false
		o := options()
		o.Codec = brokenCodec{codec.JSON[job](), func(int) { fail() }, func(int) {}}
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			if m.Attempt > 1 {
				return nil
			}
			err := m.Save(ctx, job{2})
			if e := (*dispatcher.HookError)(nil); !errors.As(err, &e) || e.Hook != "Codec.Encode" || m.Body.N != 1 {
				b.Errorf("Save: got body %v, error %v; want body 1 and a failure of Codec.Encode", m.Body, err)
			}
			saved = true
			return err
		}, o)
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 1 || st.Outcomes[Retried] != 1 {
			b.Errorf("got state %+v; want Succeeded 1, Retried 1", st)
		}
		if !saved {
			b.Error("Save did not return")
		}
	})
}

// The curve of Configure is guarded as that of the options is.
func TestACurveThatFailsInConfigureStopsNothing(t *testing.T) {
	eachFault(t, func(b *bundle, fail func()) {
		l := New(b.queue, nothing, options())
		b.run(l)
		advance(time.Second)
		if err := l.Configure(Settings{Idle: Idle{Curve: func(int) time.Duration { fail(); return time.Second }}}); err != nil {
			b.Fatal(err)
		}
		advance(time.Minute)
		b.put(10)
		advance(time.Minute)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 10 || st.Loops != 0 {
			b.Errorf("got state %+v; want Succeeded 10, Loops 0", st)
		}
	})
}

// A dispatcher without a listener survives its hooks too, and logs to slog's default when
// OnError fails.
func TestADispatcherAloneSurvivesItsHooks(t *testing.T) {
	for name, set := range map[string]func(*dispatcher.Options, func()){
		"OnRelease": func(o *dispatcher.Options, fail func()) { o.OnRelease = func(time.Time, bool) { fail() } },
		"OnError":   func(o *dispatcher.Options, fail func()) { o.OnError = func(error) { fail() } },
		"OnFailing": func(o *dispatcher.Options, fail func()) {
			o.OnFailing = func(dispatcher.FailingSource, bool) { fail() }
		},
	} {
		const jobs = 32 // that fail: enough to limit their source
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			old := slog.Default()
			slog.SetDefault(textLogger(&log))
			defer slog.SetDefault(old)
			eachFault(t, func(b *bundle, fail func()) {
				var reported errorList
				log.Reset()
				o := &dispatcher.Options{OnError: reported.add}
				set(o, fail)
				handler := func(context.Context, *Message[job]) error { return errors.New("no") }
				d, err := dispatcher.New(b.queue, dispatcher.Jobs[job]{Handler: handler}, o)
				if err != nil {
					b.Fatal(err)
				}
				if err := d.Start(b.Context()); err != nil {
					b.Fatal(err)
				}
				for range jobs {
					b.send(1)
				}
				batch, err := b.queue.Dequeue(b.Context(), jobs, time.Minute)
				if err != nil {
					b.Fatal(err)
				}
				d.Dispatch(batch, d.Reserve(b.Context()), time.Now(), time.Minute)
				if err := d.Drain(b.Context()); err != nil || d.Outcomes()[dispatcher.Retried] != jobs {
					b.Errorf("got %d retried, error %v; want %d and no error", d.Outcomes()[dispatcher.Retried], err, jobs)
				}
				if got := reported.text() + log.String(); !strings.Contains(got, "hook "+name+" of test/jobs") {
					b.Errorf("errors and log: got %s, want the failure of %s", got, name)
				}
			})
		})
	}
}

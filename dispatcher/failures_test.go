package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

var errDown = errors.New("the database is down")

// settlingQueue is a queue that accepts every settlement.
type settlingQueue struct{ instantQueue }

func (settlingQueue) Update(_ context.Context, l queue.Lease, _ string, _ time.Duration) (queue.Lease, error) {
	return l, nil
}

// givenBack is what a message was given back with.
type givenBack struct {
	head  envelope.Head
	delay time.Duration
}

// recordingQueue remembers the last update of each message.
type recordingQueue struct {
	instantQueue
	mu   sync.Mutex
	last map[queue.ID]givenBack
}

func (q *recordingQueue) Update(_ context.Context, l queue.Lease, text string, delay time.Duration) (queue.Lease, error) {
	head, _, _, err := envelope.Open(text, codec.Auto, envelope.Claims, envelope.Kinds)
	if err != nil {
		return l, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last[l.ID] = givenBack{head, delay}
	return l, nil
}

// failuresTest is a dispatcher whose handlers end when the test ends them.
type failuresTest struct {
	*testing.T
	*dispatcher.Dispatcher
	queue *recordingQueue
	sent  int

	mu      sync.Mutex
	last    bool               // the newest handler was told that it has the last attempt; guarded by mu
	running map[int]chan error // by the number of the message; guarded by mu
	changes []string           // of limited sources; guarded by mu
}

// testFailures runs a test in a bubble.
func testFailures(t *testing.T, o dispatcher.Options, f func(*failuresTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := &failuresTest{T: t, queue: &recordingQueue{last: make(map[queue.ID]givenBack)}, running: make(map[int]chan error)}
		o.OnError, o.Linger, o.MinFetch = func(error) {}, -1, 1
		o.OnFailing = func(s dispatcher.FailingSource, ended bool) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.changes = append(x.changes, fmt.Sprint(s.Source, " ", ended))
		}
		jobs := dispatcher.Jobs[[]byte]{Handler: x.handle, Codec: codec.Bytes()}
		var err error
		if o.Claims != nil { // of several kinds, too
			x.Dispatcher, err = dispatcher.NewKinds(x.queue, []dispatcher.Kind{jobs.Kind("mail", nil), jobs.Kind("bill", nil)}, &o)
		} else {
			x.Dispatcher, err = dispatcher.New(x.queue, jobs, &o)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer x.finish()
		f(x)
	})
}

func (x *failuresTest) handle(_ context.Context, m *dispatcher.Message[[]byte]) error {
	n, err := strconv.Atoi(string(m.Body))
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	x.mu.Lock()
	x.running[n], x.last = result, m.Last()
	x.mu.Unlock()
	return <-result
}

// finish ends all handlers and the dispatcher.
func (x *failuresTest) finish() {
	x.mu.Lock()
	for _, one := range x.running {
		one <- nil
	}
	x.mu.Unlock()
	if err := x.Drain(context.Background()); err != nil {
		x.Error(err)
	}
}

// reserve waits up to the time-out for slots.
func (x *failuresTest) reserve(timeout time.Duration) int {
	ctx, cancel := context.WithTimeout(x.Context(), timeout)
	defer cancel()
	return x.Reserve(ctx)
}

// begin dispatches messages with these heads, and returns the numbers of those whose handlers run.
func (x *failuresTest) begin(reserved int, heads ...envelope.Head) (running []int) {
	x.Helper()
	first := x.sent
	var batch []queue.Message
	for _, head := range heads {
		text, err := envelope.Seal(head, strconv.AppendInt(nil, int64(x.sent), 10), codec.Envelope)
		if err != nil {
			x.Fatal(err)
		}
		batch = append(batch, queue.Message{Lease: queue.Lease{ID: queue.ID(strconv.Itoa(x.sent)), Receipt: "r"}, Text: text, DequeueCount: head.Settled + 1})
		x.sent++
	}
	x.Dispatch(batch, reserved, time.Now(), time.Hour)
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	for n := first; n < x.sent; n++ {
		if x.running[n] != nil {
			running = append(running, n)
		}
	}
	return running
}

// end ends handlers with the result.
func (x *failuresTest) end(err error, running ...int) {
	x.mu.Lock()
	for _, n := range running {
		x.running[n] <- err
		delete(x.running, n)
	}
	x.mu.Unlock()
	synctest.Wait()
}

// fail makes n messages with this head fail, batch after batch, as far as they are let in.
func (x *failuresTest) fail(n int, head envelope.Head) {
	x.Helper()
	for n > 0 {
		slots := x.reserve(time.Minute)
		if slots == 0 {
			x.Fatal("Reserve: got 0 slots, want some")
		}
		k := min(slots, n)
		x.end(errDown, x.begin(slots, repeat(k, head)...)...)
		n -= k
	}
}

// slowDown makes so many first attempts fail, and lets a minute pass.
func (x *failuresTest) slowDown(n int) {
	x.Helper()
	x.fail(n, envelope.Head{})
	time.Sleep(time.Minute)
	if !x.isSlow() {
		x.Fatalf("got the limited sources %v after %d failures and a minute, want all jobs", x.Failing(), n)
	}
}

func (x *failuresTest) isSlow() bool { return x.limits("all jobs") }

// limits reports whether the source is limited.
func (x *failuresTest) limits(source string) bool {
	for _, one := range x.Failing() {
		if strings.HasPrefix(one.Source, source) {
			return true
		}
	}
	return false
}

// round waits for the next round, begins messages with these heads, and returns those whose handlers
// run, and the time waited.
func (x *failuresTest) round(heads ...envelope.Head) (running []int, waited time.Duration) {
	x.Helper()
	begin := time.Now()
	slots := x.reserve(time.Hour)
	waited = time.Since(begin)
	if slots < len(heads) {
		x.Fatalf("got %d slots after %v, want at least %d", slots, waited, len(heads))
	}
	return x.begin(slots, heads...), waited
}

// givenBack returns what a message was given back with.
func (x *failuresTest) givenBack(n int) givenBack {
	x.queue.mu.Lock()
	defer x.queue.mu.Unlock()
	return x.queue.last[queue.ID(strconv.Itoa(n))]
}

func repeat(n int, head envelope.Head) []envelope.Head {
	heads := make([]envelope.Head, n)
	for i := range heads {
		heads[i] = head
	}
	return heads
}

// retried is the head of a message whose last attempt has failed with errDown.
var retried = envelope.Head{Attempts: 1, Settled: 1, Fingerprint: "9a8beded"}

// It slows down when as many first attempts as there are slots have failed in a row, and nothing has
// succeeded for a minute. Later attempts do not count.
func TestItSlowsDownOnlyWhenNothingHasSucceededForAMinute(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		concurrency, failures int
		head                  envelope.Head
		minute                bool
		success               bool
		want                  bool
	}{
		{64, 64, envelope.Head{}, true, false, true},
		{64, 64, envelope.Head{}, false, false, false},
		{64, 63, envelope.Head{}, true, false, false},
		{64, 64, envelope.Head{}, true, true, false},
		{64, 200, envelope.Head{Attempts: 1, Settled: 1}, true, false, false},
		{1, 15, envelope.Head{}, true, false, false},
		{1, 16, envelope.Head{}, true, false, true},
	} {
		testFailures(t, dispatcher.Options{Concurrency: c.concurrency}, func(x *failuresTest) {
			x.fail(c.failures, c.head)
			time.Sleep(59 * time.Second)
			if c.success {
				running, _ := x.round(envelope.Head{})
				x.end(nil, running...)
			}
			if c.minute {
				time.Sleep(time.Second)
			}
			if x.isSlow() != c.want || x.Outage() != c.want {
				t.Errorf("%+v: slow is %v, and the sources %v", c, x.Outage(), x.Failing())
			}
			for _, one := range x.Failing() {
				if want := map[bool]int{true: 1, false: max(c.concurrency/10, 1)}[one.Source == "all jobs"]; one.Slots != want {
					t.Errorf("%+v: got %d slots of %v, want %d", c, one.Slots, one, want)
				}
			}
		})
	}
}

// A round tries one message that has failed and one that has not, and gives the others back for a few
// seconds, without an attempt.
func TestARoundTriesOneMessageOfEachLane(t *testing.T) {
	testFailures(t, dispatcher.Options{}, func(x *failuresTest) {
		x.slowDown(64)
		running, _ := x.round(append(repeat(5, retried), repeat(5, envelope.Head{})...)...)
		if len(running) != 2 || x.givenBack(running[0]) != (givenBack{}) {
			t.Fatalf("got the handlers of %v, want one of each five", running)
		}
		x.end(errDown, running...)
		for n := x.sent - 10; n < x.sent; n++ {
			want := 0
			if n < x.sent-5 {
				want = retried.Attempts
			}
			if got := x.givenBack(n); !slices.Contains(running, n) && (got.delay < 7*time.Second || got.delay > 15*time.Second || got.head.Attempts != want) {
				t.Errorf("message %d was given back with %+v, want no attempt and 7 to 15 s", n, got)
			}
		}
		if got := x.givenBack(running[1]); got.head.Attempts != 0 || got.head.Fingerprint != retried.Fingerprint {
			t.Errorf("what failed was given back with %+v, want no attempt, and the fingerprint %s", got, retried.Fingerprint)
		}
	})
}

// The pauses between rounds grow, start over in the next outage, and differ between processes.
func TestThePausesBetweenRoundsGrow(t *testing.T) {
	pauses := func(seed uint64) (all [2][]time.Duration) {
		testFailures(t, dispatcher.Options{Seed: seed}, func(x *failuresTest) {
			for outage := range all {
				x.slowDown(64)
				for range 8 {
					running, waited := x.round(envelope.Head{})
					all[outage] = append(all[outage], waited)
					x.end(errDown, running...)
				}
				running, _ := x.round(envelope.Head{})
				x.end(nil, running...)
				for x.Outage() {
					x.round()
				}
			}
		})
		return all
	}
	once, again, other := pauses(7), pauses(7), pauses(8)
	for _, waits := range once {
		for i, seconds := range []int{0, 1, 2, 4, 8, 15, 15, 15} {
			if want := time.Duration(seconds) * time.Second; waits[i] < want*3/4 || waits[i] > want*5/4 {
				t.Errorf("pause %d took %v, want about %v", i, waits[i], want)
			}
		}
	}
	if fmt.Sprint(once) != fmt.Sprint(again) || fmt.Sprint(once) == fmt.Sprint(other) {
		t.Errorf("got %v and %v for one seed, %v for another", once, again, other)
	}
}

// run begins rounds until all slots are used, and returns for how long and the handlers of each.
func (x *failuresTest) run() (took time.Duration, rounds []int) {
	begin := time.Now()
	for used := len(x.running); used < 64 && len(rounds) < 100; {
		running, _ := x.round(repeat(min(32, 64-used), envelope.Head{})...)
		used += len(running)
		rounds = append(rounds, len(running))
	}
	return time.Since(begin), rounds
}

// After the first success each round tries twice as many. So all slots run soon although no handler
// returns.
func TestAfterASuccessTheRoundsGrow(t *testing.T) {
	testFailures(t, dispatcher.Options{}, func(x *failuresTest) {
		x.slowDown(64)
		running, _ := x.round(envelope.Head{})
		x.end(errDown, running...)
		running, _ = x.round(envelope.Head{})
		x.end(nil, running...)
		if x.isSlow() {
			t.Errorf("got %v after a success", x.Failing())
		}
		if took, rounds := x.run(); took > 15*time.Second || fmt.Sprint(rounds[:4]) != "[2 4 8 16]" {
			t.Errorf("all slots ran after %v, in rounds of %v", took, rounds)
		}
	})
}

// A failure in a round after the first success starts a pause, and the next round tries as many again.
func TestAFailureKeepsTheRoundsFromGrowing(t *testing.T) {
	testFailures(t, dispatcher.Options{}, func(x *failuresTest) {
		x.slowDown(64)
		running, _ := x.round(envelope.Head{})
		x.end(nil, running...)
		running, _ = x.round(repeat(32, envelope.Head{})...)
		x.end(errDown, running...)
		again, waited := x.round(repeat(32, envelope.Head{})...)
		if len(running) != 2 || len(again) != 2 || waited < 700*time.Millisecond {
			t.Errorf("rounds of %d and, %v after their failure, %d; want 2 and 2 after a pause", len(running), waited, len(again))
		}
		x.end(nil, again...)
		if more, _ := x.round(repeat(32, envelope.Head{})...); len(more) != 4 {
			t.Errorf("then a round of %d, want 4", len(more))
		}
	})
}

// A handler that runs several times longer than the failures took counts as a success: after a short
// outage of long handlers all slots run within a minute.
func TestAHandlerThatRunsLongCountsAsASuccess(t *testing.T) {
	t.Parallel()
	for failure, most := range map[time.Duration]time.Duration{0: 20 * time.Second, 5 * time.Second: time.Minute} {
		testFailures(t, dispatcher.Options{}, func(x *failuresTest) {
			for range 4 {
				slots := x.reserve(time.Minute)
				running := x.begin(slots, repeat(min(slots, 16), envelope.Head{})...)
				time.Sleep(failure)
				x.end(errDown, running...)
			}
			time.Sleep(time.Minute)
			x.round(envelope.Head{}) // and does not return
			if took, rounds := x.run(); took > most || x.isSlow() {
				t.Errorf("failures of %v: all slots ran after %v, in rounds of %v, want at most %v", failure, took, rounds, most)
			}
		})
	}
}

// A handler that began before ends the slow-down when it succeeds, and starts no pause when it fails.
func TestHandlersThatBeganBeforeCountToo(t *testing.T) {
	testFailures(t, dispatcher.Options{Concurrency: 96}, func(x *failuresTest) {
		slots := x.reserve(time.Second)
		old := x.begin(slots, repeat(slots, envelope.Head{})...)
		x.slowDown(96)
		trial, _ := x.round(envelope.Head{})
		x.end(errDown, trial...)
		_, waited := x.round()
		x.end(errDown, old[1:]...)
		if _, again := x.round(); again > 0 || waited == 0 {
			t.Errorf("waited for %v after a failure, and for %v more after failures of old handlers, want only the first", waited, again)
		}
		x.end(nil, old[0])
		if x.isSlow() {
			t.Errorf("got %v after a success", x.Failing())
		}
	})
}

// A round that has found nothing, or whose message says nothing, is followed by another at once.
func TestARoundWithoutAResultIsRepeated(t *testing.T) {
	testFailures(t, dispatcher.Options{}, func(x *failuresTest) {
		x.slowDown(64)
		for range 3 {
			if _, waited := x.round(); waited > 0 {
				t.Errorf("waited for %v after an empty round", waited)
			}
		}
		for range 3 { // without a dequeue
			begin := time.Now()
			x.Release(x.reserve(time.Hour))
			if waited := time.Since(begin); waited > 0 {
				t.Errorf("waited for %v after a round without a dequeue", waited)
			}
		}
		for range 3 {
			running, waited := x.round(envelope.Head{})
			if waited > 0 {
				t.Errorf("waited for %v after a round that said nothing", waited)
			}
			x.end(dispatcher.NotRun(time.Minute, errDown), running...)
		}
	})
}

// While everything fails, an attempt counts only in the first minute, and after six hours again.
func TestAttemptsAreExcusedForSixHours(t *testing.T) {
	const last = 4 // attempts before the last one
	testFailures(t, dispatcher.Options{Poison: poison.Policy{Keep: true}}, func(x *failuresTest) {
		head := envelope.Head{Attempts: last, Settled: last, Fingerprint: retried.Fingerprint}
		attempt := func(want int) {
			t.Helper()
			running, _ := x.round(head)
			if len(running) != 1 || x.last {
				t.Fatalf("got the handlers of %v, last: %v; want one that is not told that it is the last", running, x.last)
			}
			x.end(errDown, running...)
			if got := x.givenBack(running[0]).head; got.Attempts != want || (got.Poison != "") != (want > last) && want == last {
				t.Errorf("after %v: given back with %+v, want %d attempts", x.Failing(), got, want)
			}
		}
		x.slowDown(64)
		since := time.Now()
		for time.Since(since) < 6*time.Hour-5*time.Minute {
			attempt(last)
			time.Sleep(5 * time.Minute)
		}
		time.Sleep(time.Until(since.Add(6 * time.Hour)))
		running, _ := x.round(head)
		if !x.last {
			t.Error("after six hours the handler is not told that it has the last attempt")
		}
		x.end(errDown, running...)
		if got := x.Outcomes()[dispatcher.Kept]; got != 1 {
			t.Errorf("after six hours: %d messages are poison, want 1", got)
		}
	})
}

// The attempts of a message without an envelope are its deliveries, and cannot be excused.
func TestAttemptsWithoutAnEnvelopeCountInAnOutage(t *testing.T) {
	testFailures(t, dispatcher.Options{Poison: poison.Policy{Keep: true}}, func(x *failuresTest) {
		x.slowDown(64)
		slots := x.reserve(time.Minute)
		x.Dispatch([]queue.Message{{Lease: queue.Lease{ID: "raw", Receipt: "r"}, Text: "1000", DequeueCount: 5}}, slots, time.Now(), time.Hour)
		synctest.Wait()
		x.end(errDown, 1000)
		if got := x.Outcomes()[dispatcher.Kept]; got != 1 {
			t.Errorf("%d messages are poison after the fifth delivery, want 1", got)
		}
	})
}

// A limited source gets a tenth of the slots, and others the rest. What it has no room for waits for
// its turn, without an attempt.
func TestAFailingSourceGetsATenthOfTheSlots(t *testing.T) {
	t.Parallel()
	mail, bill := envelope.Head{Kind: "mail"}, envelope.Head{Kind: "bill"}
	key, other := envelope.Head{Kind: "bill", Key: "7"}, envelope.Head{Kind: "bill", Key: "8"}
	for name, c := range map[string]struct{ bad, good envelope.Head }{
		`kind "mail"`: {mail, bill},
		`key "7"`:     {key, other},
		"error":       {envelope.Head{Kind: "mail", Attempts: 1, Settled: 1, Fingerprint: retried.Fingerprint}, mail},
	} {
		for _, concurrency := range []int{1, 15, 64} {
			testFailures(t, dispatcher.Options{Concurrency: concurrency, Claims: noClaims{}}, func(x *failuresTest) {
				x.fail(8, c.bad)
				good, _ := x.round(c.good) // of the same kind, but for one of the cases
				x.end(nil, good...)
				x.fail(7, c.bad)
				if len(x.Failing()) > 0 {
					t.Fatalf("%s: got %v after 15 failures", name, x.Failing())
				}
				x.fail(1, c.bad)
				if !x.limits(name) {
					t.Fatalf("%s: got %v after 16 failures", name, x.Failing())
				}
				want := max(concurrency/10, 1)
				slots := x.reserve(time.Second)
				running := x.begin(slots, repeat(slots, c.bad)...)
				if len(running) != want {
					t.Errorf("%s: %d handlers run with a concurrency of %d, want %d", name, len(running), concurrency, want)
				}
				for n := x.sent - slots; n < x.sent; n++ {
					if slices.Contains(running, n) {
						continue
					}
					if got := x.givenBack(n); got.delay < time.Second || got.delay > 2*time.Second || got.head.Attempts != c.bad.Attempts {
						t.Fatalf("%s: message %d was given back with %+v, want no attempt and a second or two", name, n, got)
					}
				}
				if concurrency < 64 {
					return
				}
				if slots, running := x.reserve(time.Second), x.begin(0); slots != 32 || len(running) > 0 {
					t.Fatalf("%s: got %d slots", name, slots)
				}
				others := x.begin(32, repeat(32, c.good)...)
				if len(others) != 32 {
					t.Errorf("%s: %d of 32 others run", name, len(others))
				}
				x.end(nil, running[0])
				if x.limits(name) {
					t.Errorf("%s: got %v after a success", name, x.Failing())
				}
			})
		}
	}
}

// noClaims keeps no bodies.
type noClaims struct{ dispatcher.Claims }

// A limited source whose handlers run several times longer than its failures took is limited no
// longer.
func TestASourceWhoseHandlersRunLongIsNotLimited(t *testing.T) {
	testFailures(t, dispatcher.Options{}, func(x *failuresTest) {
		x.fail(16, retried)
		slots := x.reserve(time.Second)
		if running := x.begin(slots, repeat(slots, retried)...); len(running) != 6 {
			t.Fatalf("%d handlers run, want 6", len(running))
		}
		time.Sleep(time.Second)
		slots = x.reserve(time.Second)
		if running := x.begin(slots, repeat(slots, retried)...); len(running) != slots || len(x.Failing()) > 0 {
			t.Errorf("%d of %d handlers run, limited is %v", len(running), slots, x.Failing())
		}
	})
}

// What is given back for want of room waits longer the longer the source fails, and not all comes
// back at once.
func TestMessagesOfAFailingSourceComeBackOneAfterAnother(t *testing.T) {
	testFailures(t, dispatcher.Options{}, func(x *failuresTest) {
		x.fail(16, retried)
		slots := x.reserve(time.Second)
		running := x.begin(slots, repeat(slots, retried)...)
		if len(running) != 6 {
			t.Fatalf("%d handlers run, want 6", len(running))
		}
		x.end(errDown, running...)
		time.Sleep(15 * time.Minute)
		var delays []time.Duration
		for range 300 {
			slots := x.reserve(time.Second)
			running := x.begin(slots, repeat(slots, retried)...)
			for n := x.sent - slots; n < x.sent; n++ {
				if got := x.givenBack(n); got.delay > 0 {
					delays = append(delays, got.delay)
				}
			}
			x.end(errDown, running...)
		}
		perSecond := make(map[time.Duration]int)
		for _, d := range delays {
			perSecond[d.Truncate(10*time.Second)]++
			if d > 10*time.Minute {
				t.Fatalf("a message waits for %v", d)
			}
		}
		if len(delays) < 5000 || perSecond[0] > 100 || perSecond[100*time.Second] > 100 {
			t.Errorf("%d messages come back in the first ten seconds, %d after a hundred; want about 60 and 60 to 80 of %d", perSecond[0], perSecond[100*time.Second], len(delays))
		}
	})
}

// A source that is not seen any more is forgotten, and what changes is told once.
func TestASourceThatIsGoneIsForgotten(t *testing.T) {
	testFailures(t, dispatcher.Options{}, func(x *failuresTest) {
		x.fail(64, retried)
		time.Sleep(21 * time.Minute)
		if got := x.Failing(); len(got) > 0 {
			t.Errorf("got %v", got)
		}
		x.slowDown(64)
		time.Sleep(21 * time.Minute)
		if got := x.Failing(); len(got) > 0 {
			t.Errorf("got %v", got)
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		source := "error " + retried.Fingerprint
		if want := []string{source + " false", source + " true", source + " false", "all jobs false", "all jobs true", source + " true"}; fmt.Sprint(x.changes) != fmt.Sprint(want) {
			t.Errorf("told %v, want %v", x.changes, want)
		}
	})
}

// However many errors there are, the sources that are remembered are bounded.
func TestTheSourcesAreBounded(t *testing.T) {
	testFailures(t, dispatcher.Options{}, func(x *failuresTest) {
		x.fail(16, retried)
		for n := range 3000 {
			running, _ := x.round(envelope.Head{Attempts: 1, Settled: 1, Fingerprint: "b", Key: fmt.Sprint(n)})
			x.end(errDown, running...)
		}
		if got := x.Failing(); len(got) != 2 {
			t.Errorf("got %v, want the two errors that repeat", got)
		}
	})
}

// curious is an error of the program that asks for the limited sources.
type curious struct{ of *dispatcher.Dispatcher }

func (e curious) Error() string { return fmt.Sprint("limited: ", len(e.of.Failing())) }

// The text of an error is code of the program: it may ask for the limited sources.
func TestAnErrorMayAskForTheFailingSources(t *testing.T) {
	testFailures(t, dispatcher.Options{}, func(x *failuresTest) {
		for range 64 {
			running, _ := x.round(envelope.Head{})
			x.end(curious{x.Dispatcher}, running...)
		}
		time.Sleep(time.Minute)
		if got := x.Failing(); len(got) != 2 || got[0].Error != "limited: 1" {
			t.Errorf("got %v", got)
		}
	})
}

// A change of the concurrency changes the share of a limited source, and how many failures slow it down.
func TestResizeChangesTheShare(t *testing.T) {
	testFailures(t, dispatcher.Options{Concurrency: 64}, func(x *failuresTest) {
		x.Resize(200)
		x.Open(200, 200)
		x.fail(64, envelope.Head{})
		x.fail(16, retried)
		slots := x.reserve(time.Second)
		if running := x.begin(slots, repeat(slots, retried)...); len(running) != 20 {
			t.Errorf("%d handlers run, want a tenth of 200", len(running))
		}
		time.Sleep(time.Minute)
		if x.isSlow() {
			t.Error("64 failures slow down 200 slots")
		}
	})
}

// With NoSourceLimits nothing is limited, and the texts of messages have no fingerprints.
func TestLimitsCanBeTurnedOff(t *testing.T) {
	testFailures(t, dispatcher.Options{NoSourceLimits: true}, func(x *failuresTest) {
		x.fail(200, envelope.Head{})
		x.fail(200, retried)
		time.Sleep(time.Minute)
		if x.Outage() || len(x.Failing()) > 0 || x.Outcomes()[dispatcher.Retried] != 400 || x.givenBack(0).head.Fingerprint != "" {
			t.Errorf("got %v, %d retries and %+v", x.Failing(), x.Outcomes()[dispatcher.Retried], x.givenBack(0))
		}
	})
}

// A text without room for the fingerprint is recorded without it.
func TestATextWithoutRoomHasNoFingerprint(t *testing.T) {
	for spare, want := range map[int]bool{0: false, 100: true} {
		testFailures(t, dispatcher.Options{}, func(x *failuresTest) {
			slots := x.reserve(time.Second)
			body := "0" + strings.Repeat(" ", queue.MaxText-len("millrace/1?id=7\n0")-envelope.Room-spare)
			text := "millrace/1?id=7\n" + body
			x.Dispatch([]queue.Message{{Lease: queue.Lease{ID: "0", Receipt: "r"}, Text: text, DequeueCount: 1}}, slots, time.Now(), time.Hour)
			synctest.Wait()
			if got := x.givenBack(0).head; got.Attempts != 1 || (got.Fingerprint != "") != want {
				t.Errorf("with %d bytes to spare: got %+v, want an attempt, and a fingerprint: %v", spare, got, want)
			}
		})
	}
}

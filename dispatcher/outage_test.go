package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
)

var errDown = errors.New("the database is down")

// settlingQueue is a queue that accepts every settlement.
type settlingQueue struct{ instantQueue }

func (settlingQueue) Update(_ context.Context, l queue.Lease, _ string, _ time.Duration) (queue.Lease, error) {
	return l, nil
}

// outageTest is a dispatcher whose handlers end when the test ends them, with the given result.
type outageTest struct {
	*testing.T
	*dispatcher.Dispatcher
	sent int

	mu      sync.Mutex
	running map[int]chan error // by the number of the message; guarded by mu
}

// testOutage runs a test with an outageTest in a bubble.
func testOutage(t *testing.T, o dispatcher.Options, f func(*outageTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := newOutageTest(t, o)
		defer x.finish()
		f(x)
	})
}

// finish ends all handlers and the dispatcher.
func (x *outageTest) finish() {
	x.mu.Lock()
	for _, one := range x.running {
		one <- nil
	}
	x.mu.Unlock()
	if err := x.Drain(context.Background()); err != nil {
		x.Error(err)
	}
}

func newOutageTest(t *testing.T, o dispatcher.Options) *outageTest {
	t.Helper()
	x := &outageTest{T: t, running: make(map[int]chan error)}
	o.OnError, o.Linger, o.MinFetch = func(error) {}, -1, 1
	handler := func(_ context.Context, m *dispatcher.Message[[]byte]) error {
		n, err := strconv.Atoi(string(m.Body))
		if err != nil {
			return err
		}
		x.mu.Lock()
		result := make(chan error, 1)
		x.running[n] = result
		x.mu.Unlock()
		return <-result
	}
	d, err := dispatcher.New(settlingQueue{}, dispatcher.Jobs[[]byte]{Handler: handler, Codec: codec.Bytes()}, &o)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.Dispatcher = d
	return x
}

// reserve waits up to the time-out for slots.
func (x *outageTest) reserve(timeout time.Duration) int {
	ctx, cancel := context.WithTimeout(x.Context(), timeout)
	defer cancel()
	return x.Reserve(ctx)
}

// begin dispatches n messages to reserved slots and returns the number of the first.
func (x *outageTest) begin(n, reserved int) (first int) {
	first = x.sent
	var batch []queue.Message
	for range n {
		batch = append(batch, queue.Message{
			Lease: queue.Lease{ID: queue.ID(strconv.Itoa(x.sent)), Receipt: "r"},
			Text:  fmt.Sprintf("millrace/1?n=0\n%d", x.sent), DequeueCount: 1,
		})
		x.sent++
	}
	x.Dispatch(batch, reserved, time.Now(), time.Hour)
	synctest.Wait()
	return first
}

// end ends handlers with the result.
func (x *outageTest) end(first, n int, err error) {
	x.mu.Lock()
	for i := first; i < first+n; i++ {
		x.running[i] <- err
		delete(x.running, i)
	}
	x.mu.Unlock()
	synctest.Wait()
}

// fail makes n first attempts fail, batch after batch.
func (x *outageTest) fail(n int) {
	x.Helper()
	for n > 0 {
		slots := x.reserve(time.Minute)
		if slots == 0 {
			x.Fatal("Reserve: got 0 slots, want some")
		}
		k := min(slots, n)
		x.end(x.begin(k, slots), k, errDown)
		n -= k
	}
}

// probe waits for a probe, begins it, and returns its number and the time waited.
func (x *outageTest) probe() (n int, wait time.Duration) {
	x.Helper()
	begin := time.Now()
	if slots := x.reserve(time.Hour); slots != 1 {
		x.Fatalf("got %d slots after %v, want 1 for a probe", slots, time.Since(begin))
	}
	return x.begin(1, 1), time.Since(begin)
}

// hasEnded reports whether more messages than a probe are let through.
func (x *outageTest) hasEnded() bool {
	n := x.reserve(time.Millisecond)
	if n > 0 {
		x.Dispatch(nil, n, time.Now(), 0)
	}
	return n > 1
}

// A probe whose handler hangs does not block the next: another starts after the longest pause,
// and only one.
func TestAHangingProbeIsFollowedByAnother(t *testing.T) {
	testOutage(t, dispatcher.Options{}, func(x *outageTest) {
		x.fail(64)
		x.probe()
		for range 10 { // none of these returns
			if n := x.reserve(14 * time.Second); n != 0 {
				t.Fatalf("got %d slots while a probe runs, want 0", n)
			}
			x.probe()
		}
		last, _ := x.probe()
		x.end(last, 1, nil)
		if !x.hasEnded() {
			t.Error("the outage has not ended after the last probe succeeded")
		}
	})
}

// The success of a probe counts after another one was sent.
func TestALateSuccessOfAnOldProbeEndsTheOutage(t *testing.T) {
	testOutage(t, dispatcher.Options{}, func(x *outageTest) {
		x.fail(64)
		old, _ := x.probe()
		newer, _ := x.probe()
		x.end(newer, 1, errDown)
		if x.hasEnded() {
			t.Fatal("the outage has ended after a probe failed")
		}
		x.end(old, 1, nil)
		if !x.hasEnded() {
			t.Error("the outage has not ended after a probe succeeded")
		}
	})
}

// Failures of handlers that began before the outage, and of replaced probes, do not count as
// those of the current probe: they start no other one.
func TestOnlyTheFailureOfTheCurrentProbeCounts(t *testing.T) {
	testOutage(t, dispatcher.Options{Concurrency: 96}, func(x *outageTest) {
		slots := x.reserve(time.Second)
		slow := x.begin(slots, slots)
		x.fail(96)
		probe, _ := x.probe()
		x.end(slow, slots, errDown)
		if n := x.reserve(10 * time.Second); n != 0 {
			t.Errorf("got %d slots after old handlers failed while the probe ran, want 0", n)
		}
		second, _ := x.probe()
		x.end(probe, 1, errDown)
		if n := x.reserve(10 * time.Second); n != 0 {
			t.Errorf("got %d slots after the first probe failed while the second ran, want 0", n)
		}
		x.end(second, 1, nil)
		if !x.hasEnded() {
			t.Error("the outage has not ended after the second probe succeeded")
		}
	})
}

// A caller that waits for the next probe is released when the outage ends.
func TestTheEndOfAnOutageWakesWaitingCallers(t *testing.T) {
	testOutage(t, dispatcher.Options{}, func(x *outageTest) {
		x.fail(64)
		probe, _ := x.probe()
		got := make(chan int, 1)
		go func() { got <- x.reserve(time.Hour) }()
		synctest.Wait()
		begin := time.Now()
		x.end(probe, 1, nil)
		if n := <-got; n < 2 || time.Since(begin) != 0 {
			t.Errorf("got %d slots after %v, want at least 2 at once", n, time.Since(begin))
			return
		}
	})
}

// A probe without a result, because there was no message, is followed by another at once.
func TestAProbeThatFoundNothingIsRepeated(t *testing.T) {
	testOutage(t, dispatcher.Options{}, func(x *outageTest) {
		x.fail(64)
		for range 3 {
			if n := x.reserve(5 * time.Second); n != 1 {
				t.Fatalf("got %d slots; want 1", n)
			}
			x.Dispatch(nil, 1, time.Now(), time.Minute)
		}
	})
}

// The pauses grow during an outage and start over in the next one.
func TestThePausesOfAnotherOutageStartOver(t *testing.T) {
	testOutage(t, dispatcher.Options{}, func(x *outageTest) {
		for round := range 2 {
			x.fail(64)
			probes := 0
			for begin := time.Now(); time.Since(begin) < 12*time.Second; probes++ {
				probe, _ := x.probe()
				x.end(probe, 1, errDown)
			}
			if probes < 4 || probes > 5 {
				t.Errorf("outage %d: got %d probes in 12 s, want 4 or 5, after 1, 2, 4 and 8 s", round, probes)
			}
			for range 10 { // until the pause has its maximum
				probe, _ := x.probe()
				x.end(probe, 1, errDown)
			}
			last, _ := x.probe()
			x.end(last, 1, nil)
			if !x.hasEnded() {
				t.Fatalf("outage %d has not ended after a probe succeeded", round)
			}
		}
	})
}

// A change of the concurrency changes how many failures are an outage, in both directions, and
// does not end one.
func TestResizeChangesHowManyFailuresAreAnOutage(t *testing.T) {
	testOutage(t, dispatcher.Options{}, func(x *outageTest) {
		x.Resize(200)
		x.Open(200, 200)
		x.fail(199)
		if !x.hasEnded() {
			t.Fatal("got an outage after 199 of 200 failures, want none")
		}
		x.fail(1)
		if x.hasEnded() {
			t.Fatal("got no outage after 200 of 200 failures, want one")
		}
		x.Resize(1000)
		if x.hasEnded() {
			t.Error("the outage has ended with a higher concurrency")
		}
		probe, _ := x.probe()
		x.end(probe, 1, nil)
		x.Resize(20)
		x.fail(20)
		if x.hasEnded() {
			t.Error("got no outage after 20 of 20 failures, want one")
		}
	})
}

// Processes in the same outage do not probe together; a run with the same seed can be repeated.
func TestProcessesDoNotProbeTogether(t *testing.T) {
	waits := func(t *testing.T, seed uint64) (all [4]time.Duration) {
		testOutage(t, dispatcher.Options{Seed: seed}, func(x *outageTest) {
			x.fail(64)
			for i := range all {
				var probe int
				probe, all[i] = x.probe()
				x.end(probe, 1, errDown)
			}
		})
		return all
	}
	seen := make(map[[4]time.Duration]bool)
	for range 50 {
		seen[waits(t, 0)] = true
	}
	if len(seen) != 50 {
		t.Errorf("series of waits of 50 processes: got %d, want 50", len(seen))
	}
	if once, again := waits(t, 7), waits(t, 7); once != again {
		t.Errorf("two runs of one seed: got waits %v and %v, want equal ones", once, again)
	}
}

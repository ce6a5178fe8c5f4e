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

// settling is a queue that accepts every settlement.
type settling struct{ instant }

func (settling) Update(_ context.Context, l queue.Lease, _ string, _ time.Duration) (queue.Lease, error) {
	return l, nil
}

// outage is a dispatcher whose handlers end when the test says so, with the result it gives.
type outage struct {
	*testing.T
	*dispatcher.Dispatcher
	sent int

	mu      sync.Mutex
	running map[int]chan error // by the number of the message; guarded by mu
}

// outages runs a test with such a dispatcher in a bubble.
func outages(t *testing.T, o dispatcher.Options, f func(*outage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		x := newOutage(t, o)
		defer x.finish()
		f(x)
	})
}

// finish ends all handlers and the dispatcher.
func (x *outage) finish() {
	x.mu.Lock()
	for _, one := range x.running {
		one <- nil
	}
	x.mu.Unlock()
	if err := x.Drain(context.Background()); err != nil {
		x.Error(err)
	}
}

func newOutage(t *testing.T, o dispatcher.Options) *outage {
	t.Helper()
	x := &outage{T: t, running: make(map[int]chan error)}
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
	d, err := dispatcher.New(settling{}, dispatcher.Jobs[[]byte]{Handler: handler, Codec: codec.Bytes()}, &o)
	if err != nil {
		t.Fatal(err)
	}
	d.Start(t.Context())
	x.Dispatcher = d
	return x
}

// reserve waits up to the time-out for slots.
func (x *outage) reserve(timeout time.Duration) int {
	ctx, cancel := context.WithTimeout(x.Context(), timeout)
	defer cancel()
	return x.Reserve(ctx)
}

// begin dispatches n messages to reserved slots and returns the number of the first.
func (x *outage) begin(n, reserved int) (first int) {
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
func (x *outage) end(first, n int, err error) {
	x.mu.Lock()
	for i := first; i < first+n; i++ {
		x.running[i] <- err
		delete(x.running, i)
	}
	x.mu.Unlock()
	synctest.Wait()
}

// fail lets n first attempts fail, batch after batch.
func (x *outage) fail(n int) {
	x.Helper()
	for n > 0 {
		slots := x.reserve(time.Minute)
		if slots == 0 {
			x.Fatal("no slots")
		}
		k := min(slots, n)
		x.end(x.begin(k, slots), k, errDown)
		n -= k
	}
}

// probe waits for a probe, begins it, and returns its number and how long it took to come.
func (x *outage) probe() (n int, wait time.Duration) {
	x.Helper()
	begin := time.Now()
	if slots := x.reserve(time.Hour); slots != 1 {
		x.Fatalf("%d slots after %v, want one for a probe", slots, time.Since(begin))
	}
	return x.begin(1, 1), time.Since(begin)
}

// isClosed reports whether more than one probe is let through.
func (x *outage) isClosed() bool {
	n := x.reserve(time.Millisecond)
	if n > 0 {
		x.Dispatch(nil, n, time.Now(), 0)
	}
	return n > 1
}

// A probe whose handler hangs does not block the next: another starts after the longest pause,
// and only one.
func TestAProbeThatHangsHoldsNothingForEver(t *testing.T) {
	outages(t, dispatcher.Options{}, func(x *outage) {
		x.fail(64)
		x.probe()
		for range 10 { // and none of these returns
			if n := x.reserve(14 * time.Second); n != 0 {
				t.Fatalf("%d slots while a probe is on its way", n)
			}
			x.probe()
		}
		last, _ := x.probe()
		x.end(last, 1, nil)
		if !x.isClosed() {
			t.Error("the last probe has succeeded and messages are held back")
		}
	})
}

// The success of a probe counts after another one was sent.
func TestALateSuccessOfAnOldProbeEndsTheOutage(t *testing.T) {
	outages(t, dispatcher.Options{}, func(x *outage) {
		x.fail(64)
		old, _ := x.probe()
		newer, _ := x.probe()
		x.end(newer, 1, errDown)
		if x.isClosed() {
			t.Fatal("a probe has failed and messages are let through")
		}
		x.end(old, 1, nil)
		if !x.isClosed() {
			t.Error("a probe has succeeded and messages are held back")
		}
	})
}

// Failures of handlers that began before the outage, and of replaced probes, do not count for
// the current probe: they start no other one.
func TestOnlyTheProbesOwnFailureEndsIt(t *testing.T) {
	outages(t, dispatcher.Options{Concurrency: 96}, func(x *outage) {
		slots := x.reserve(time.Second)
		slow := x.begin(slots, slots)
		x.fail(96)
		probe, _ := x.probe()
		x.end(slow, slots, errDown)
		if n := x.reserve(10 * time.Second); n != 0 {
			t.Errorf("%d slots when old handlers had failed and the probe was on its way", n)
		}
		second, _ := x.probe()
		x.end(probe, 1, errDown)
		if n := x.reserve(10 * time.Second); n != 0 {
			t.Errorf("%d slots when the first probe had failed and the second was on its way", n)
		}
		x.end(second, 1, nil)
		if !x.isClosed() {
			t.Error("it does not end")
		}
	})
}

// A caller that waits for the next probe is released when the outage ends.
func TestTheEndOfAnOutageWakesWhoWaits(t *testing.T) {
	outages(t, dispatcher.Options{}, func(x *outage) {
		x.fail(64)
		probe, _ := x.probe()
		got := make(chan int, 1)
		go func() { got <- x.reserve(time.Hour) }()
		synctest.Wait()
		begin := time.Now()
		x.end(probe, 1, nil)
		if n := <-got; n < 2 || time.Since(begin) != 0 {
			t.Errorf("%d slots after %v", n, time.Since(begin))
			return
		}
	})
}

// A probe without a result, because there was no message, is followed by another at once.
func TestAProbeThatFoundNothingIsRepeated(t *testing.T) {
	outages(t, dispatcher.Options{}, func(x *outage) {
		x.fail(64)
		for range 3 {
			if n := x.reserve(5 * time.Second); n != 1 {
				t.Fatalf("%d slots", n)
			}
			x.Dispatch(nil, 1, time.Now(), time.Minute)
		}
	})
}

// The pauses grow during an outage and start over in the next one.
func TestThePausesOfAnotherOutageStartOver(t *testing.T) {
	outages(t, dispatcher.Options{}, func(x *outage) {
		for round := range 2 {
			x.fail(64)
			probes := 0
			for begin := time.Now(); time.Since(begin) < 12*time.Second; probes++ {
				probe, _ := x.probe()
				x.end(probe, 1, errDown)
			}
			if probes < 4 || probes > 5 {
				t.Errorf("outage %d: %d probes in 12 s, want those after 1, 2, 4 and 8 s", round, probes)
			}
			for range 10 { // until the pause is the longest
				probe, _ := x.probe()
				x.end(probe, 1, errDown)
			}
			last, _ := x.probe()
			x.end(last, 1, nil)
			if !x.isClosed() {
				t.Fatalf("outage %d does not end", round)
			}
		}
	})
}

// A change of the concurrency changes how many failures are an outage, in both directions, and
// does not end one.
func TestResizeChangesHowManyFailuresAreAnOutage(t *testing.T) {
	outages(t, dispatcher.Options{}, func(x *outage) {
		x.Resize(200)
		x.Open(200, 200)
		x.fail(199)
		if !x.isClosed() {
			t.Fatal("199 failures of 200 are an outage")
		}
		x.fail(1)
		if x.isClosed() {
			t.Fatal("200 failures of 200 are none")
		}
		x.Resize(1000)
		if x.isClosed() {
			t.Error("a higher concurrency has ended the outage")
		}
		probe, _ := x.probe()
		x.end(probe, 1, nil)
		x.Resize(20)
		x.fail(20)
		if x.isClosed() {
			t.Error("20 failures of 20 are no outage")
		}
	})
}

// Processes in the same outage do not probe together; a run with the same seed can be repeated.
func TestProcessesDoNotProbeTogether(t *testing.T) {
	waits := func(t *testing.T, seed uint64) (all [4]time.Duration) {
		outages(t, dispatcher.Options{Seed: seed}, func(x *outage) {
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
		t.Errorf("50 processes have %d series of waits", len(seen))
	}
	if once, again := waits(t, 7), waits(t, 7); once != again {
		t.Errorf("one seed gives the waits %v and %v", once, again)
	}
}

package listener

import (
	"context"
	"fmt"
	"github.com/millrace/millrace/wakeup"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling"
)

// network is a queue behind a network and a service that both have limits. Its messages are made up.
type network struct {
	queue.Queue
	latency  time.Duration // of a dequeue that does not wait
	capacity int           // dequeues that the service answers at once; 0 for any number
	refuses  bool          // it refuses those beyond; otherwise they wait
	arrival  float64       // messages a second; 0 for as many as anybody asks for

	begun time.Time

	mu       sync.Mutex
	random   *rand.Rand  // guarded by mu
	inFlight int         // dequeues; guarded by mu
	free     []time.Time // when each place of the service is free; guarded by mu
	tally                // guarded by mu
}

// tally is what a network has counted.
type tally struct {
	made     int // messages
	dequeues int
	refused  int // of these
	readings int // of the properties
}

// counts returns what was counted so far.
func (n *network) counts() tally {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.tally
}

func newNetwork(t *testing.T, seed uint64) *network {
	inner := must(localqueue.New(nil)).Queue(queue.Name{Account: "test", Queue: "jobs"})
	if err := inner.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return &network{Queue: inner, random: rand.New(rand.NewPCG(seed, 0)), begun: time.Now()}
}

func (n *network) Properties(context.Context) (queue.Properties, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.readings++
	return queue.Properties{Depth: int64(n.waiting())}, nil
}

// waiting returns how many messages are in the queue. Requires mu.
func (n *network) waiting() int {
	if n.arrival == 0 {
		return 100_000
	}
	return int(n.arrival*time.Since(n.begun).Seconds()) - n.made
}

// begin begins a dequeue and returns how long it takes, or false if the service refuses it.
func (n *network) begin() (time.Duration, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dequeues++
	takes := time.Duration(float64(n.latency) * (0.8 + 0.4*n.random.Float64()))
	if n.capacity == 0 {
		return takes, true
	}
	if n.refuses && n.inFlight >= n.capacity {
		n.refused++
		return 0, false
	}
	n.inFlight++
	if n.free == nil {
		n.free = make([]time.Time, n.capacity)
	}
	first := 0
	for i := range n.free {
		if n.free[i].Before(n.free[first]) {
			first = i
		}
	}
	if now := time.Now(); n.free[first].Before(now) {
		n.free[first] = now
	}
	n.free[first] = n.free[first].Add(takes)
	return time.Until(n.free[first]), true
}

func (n *network) Dequeue(_ context.Context, most int, visibility time.Duration) ([]queue.Message, error) {
	takes, ok := n.begin()
	if !ok {
		time.Sleep(time.Millisecond)
		return nil, fmt.Errorf("dequeue: %w", queue.ErrThrottled)
	}
	time.Sleep(takes)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inFlight--
	batch := make([]queue.Message, max(min(most, n.waiting()), 0))
	for i := range batch {
		n.made++
		id := queue.ID("m" + strconv.Itoa(n.made))
		batch[i] = queue.Message{
			Text: `{"N":1}`, Lease: queue.Lease{ID: id, Receipt: "r", Until: time.Now().Add(visibility)}, DequeueCount: 1, Inserted: n.begun,
		}
	}
	return batch, nil
}

func (n *network) Delete(context.Context, queue.Lease) error { return nil }

// measured is what a listener did in the second half of a run.
type measured struct {
	loops    float64 // on average
	rate     float64 // messages a second
	dequeues float64 // a thousand messages
	refused  float64 // of a hundred dequeues
	readings int     // of the depth, in the whole run
}

func (f measured) String() string {
	return fmt.Sprintf("%.1f loops, %.0f messages/s, %.0f dequeues per 1,000 messages, %.1f %% refused, %d readings of the depth",
		f.loops, f.rate, f.dequeues, f.refused, f.readings)
}

// batch is a small batch size, so that little work shows what loops do.
const batch = 4

// measure runs a listener for four minutes.
func measure(t *testing.T, seed uint64, set func(*network, *Options[job])) (f measured) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, seed)
		o := options()
		o.Seed, o.Concurrency, o.Fetch.BatchSize, o.Fetch.Loops = seed, 32*batch, batch, Loops{Max: 32}
		set(n, o)
		b := &bundle{T: t}
		l := New(n, func(context.Context, *Message[job]) error { time.Sleep(20 * time.Millisecond); return nil }, o)
		b.run(l)
		advance(2 * time.Minute)
		before, begun := l.State(), n.counts()
		const seconds = 120
		for range seconds {
			advance(time.Second)
			f.loops += float64(l.State().Loops) / seconds
		}
		ended := n.counts()
		messages, dequeues := float64(ended.made-begun.made), float64(ended.dequeues-begun.dequeues)
		f.rate = messages / seconds
		f.dequeues = dequeues / messages * 1000
		f.refused = float64(ended.refused-begun.refused) / dequeues * 100
		f.readings = ended.readings
		if got := float64(l.State().Received - before.Received); got < 0.9*messages {
			t.Errorf("the listener received %v of %v messages", got, messages)
		}
		b.mustFinish()
	})
	return f
}

// with a slow network few loops cannot take what comes, and a fixed number that was right for a fast one
// falls behind. The controller finds as many as are needed.
func TestAControllerFindsEnoughLoops(t *testing.T) {
	if testing.Short() {
		t.Skip("plays hours")
	}
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(seed, 1))
		latency := time.Duration(300+random.IntN(700)) * time.Millisecond
		knee := float64(3 + random.IntN(10))
		slow := func(n *network, o *Options[job]) {
			n.latency = latency
			n.arrival = batch * knee / latency.Seconds()
			o.Fetch.QueueWorkDetected = scaling.Table(2)
		}
		want := batch * knee / latency.Seconds()
		fixed := measure(t, seed, slow)
		got := measure(t, seed, func(n *network, o *Options[job]) { slow(n, o); o.Fetch.LoopsByIntake = true })
		t.Logf("latency %v, %.0f messages/s come, %.0f loops are needed: fixed: %v; by intake: %v", latency, want, knee, fixed, got)
		if fixed.rate > 0.8*want {
			t.Errorf("seed %d: the fixed number takes %.0f of %.0f messages/s: it proves nothing", seed, fixed.rate, want)
		}
		if got.rate < 0.95*want {
			t.Errorf("seed %d: got %.0f messages/s, want at least 95 %% of the %.0f that come", seed, got.rate, want)
		}
		if got.loops > 1.5*knee+1 {
			t.Errorf("seed %d: got %.1f loops, want at most 1.5 times the %.0f that are needed", seed, got.loops, knee)
		}
	}
}

// Where the service answers only so many dequeues at once, more loops bring nothing. The depth calls for
// all that there may be; the controller stops near the knee.
func TestAControllerFindsTheKneeOfTheService(t *testing.T) {
	if testing.Short() {
		t.Skip("handles tens of thousands of messages")
	}
	for _, refuses := range []bool{false, true} {
		for seed := range uint64(3) {
			random := rand.New(rand.NewPCG(seed, 2))
			capacity := 2 + random.IntN(8)
			latency := time.Duration(100+random.IntN(200)) * time.Millisecond
			saturating := func(n *network, o *Options[job]) { n.latency, n.capacity, n.refuses = latency, capacity, refuses }
			want := batch * float64(capacity) / latency.Seconds()
			fixed := measure(t, seed, saturating)
			got := measure(t, seed, func(n *network, o *Options[job]) { saturating(n, o); o.Fetch.LoopsByIntake = true })
			t.Logf("capacity %d of %v, refuses %v, %.0f messages/s at most: by depth: %v; by intake: %v", capacity, latency, refuses, want, fixed, got)
			if fixed.loops < 2*float64(capacity) {
				t.Errorf("seed %d: the depth calls for %.1f loops with a capacity of %d: it proves nothing", seed, fixed.loops, capacity)
			}
			if got.rate < 0.85*want {
				t.Errorf("seed %d: got %.0f messages/s, want at least 85 %% of %.0f", seed, got.rate, want)
			}
			if most := 1.5*float64(capacity) + 1; got.loops > most {
				t.Errorf("seed %d: got %.1f loops, want at most %.1f", seed, got.loops, most)
			}
		}
	}
}

// The controller's result is kept within Loops, surplus loops end at once although Pause is long, and those that are missing start.
func TestAControllerStartsAndEndsLoops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		n.latency = 50 * time.Millisecond
		var mu sync.Mutex
		want, asked := 1000, 0
		set := func(loops int) {
			mu.Lock()
			defer mu.Unlock()
			want = loops
		}
		o := options()
		o.Concurrency, o.Fetch.BatchSize, o.Fetch.Loops = 128, batch, Loops{Min: 2, Max: 9, Pause: time.Hour}
		b := &bundle{T: t}
		l := New(n, func(context.Context, *Message[job]) error { return nil }, o)
		l.steer = func(i interval) int {
			mu.Lock()
			defer mu.Unlock()
			asked++
			if i.dequeues < measuredRounds*i.loops || i.full != i.dequeues || i.took < minInterval {
				t.Errorf("got the interval %+v, want eight full dequeues of each loop", i)
			}
			if got, want := i.intake*i.took.Seconds(), float64(i.dequeues*batch); got < want*0.99 || got > want*1.01 {
				t.Errorf("the intake of %+v is that of %v messages, want %v", i, got, want)
			}
			return want
		}
		b.run(l)
		for _, c := range []struct{ wants, loops int }{{1000, 9}, {3, 3}, {-5, 2}, {7, 7}, {0, 2}} {
			set(c.wants)
			advance(5 * time.Second)
			if got := l.State().Loops; got != c.loops {
				t.Errorf("the controller wants %d loops: got %d, want %d", c.wants, got, c.loops)
			}
		}
		if err := l.Configure(Settings{Loops: Loops{Min: 5}}); err != nil {
			t.Fatal(err)
		}
		advance(5 * time.Second)
		if got := l.State().Loops; got != 5 {
			t.Errorf("a minimum of 5 was set: got %d loops", got)
		}
		mu.Lock()
		if asked < 20 {
			t.Errorf("asked %d times in 30 s, want more than 20", asked)
		}
		mu.Unlock()
		b.mustFinish()
	})
}

// A controller that blocks holds back one loop, no others.
func TestAControllerThatBlocksHoldsBackOneLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, 1)
		n.latency = 50 * time.Millisecond
		release := make(chan struct{})
		o := options()
		o.Concurrency, o.Fetch.BatchSize, o.Fetch.Loops = 64, batch, Loops{Min: 2, Max: 2}
		b := &bundle{T: t}
		l := New(n, func(context.Context, *Message[job]) error { return nil }, o)
		l.steer = func(i interval) int { <-release; return i.loops }
		b.run(l)
		advance(5 * time.Second)
		before := l.State().Outcomes[Deleted]
		advance(5 * time.Second)
		if got := l.State().Outcomes[Deleted] - before; got < batch*5*15 {
			t.Errorf("while the controller blocks: got %d jobs in 5 s, want those of one loop, about %d", got, batch*5*20)
		}
		close(release)
		b.mustFinish()
	})
}

// On an idle queue a controller costs nothing: no reading of the depth, and as many polls as without.
func TestAControllerCostsNoRequests(t *testing.T) {
	sent := func(set func(*Options[job])) (polls, readings int) {
		bubble(t, func(b *bundle) {
			o := options()
			o.Seed = 1
			set(o)
			b.put(2000)
			b.queue.latency = 10 * time.Millisecond
			b.run(New(b.queue, func(context.Context, *Message[job]) error { return nil }, o))
			advance(10 * time.Minute)
			polls, readings = len(b.queue.sent("dequeue")), len(b.queue.sent("properties"))
			b.mustFinish()
		})
		return polls, readings
	}
	polls, readings := sent(func(*Options[job]) {})
	with, read := sent(func(o *Options[job]) { o.Fetch.LoopsByIntake = true })
	if with > polls+polls/20 || read > readings {
		t.Errorf("got %d polls and %d readings of the depth, want no more than the %d and %d without", with, read, polls, readings)
	}
}

// A controller that wants no loop ends all but one: only an empty poll ends the last one, because nobody
// would start it again for the messages that are left.
func TestAControllerDoesNotEndTheLastLoop(t *testing.T) {
	bubble(t, func(b *bundle) {
		source := &wakeup.Bus{}
		o := wakeOptions(source)
		o.Fetch.SafetyPoll, o.Concurrency, o.Fetch.BatchSize = noSafety, 4, 1
		b.queue.latency = 20 * time.Millisecond
		l := New(b.queue, nothing, o)
		l.steer = func(interval) int { return 0 }
		b.run(l)
		advance(time.Minute)
		b.put(300)
		b.publish(source)
		advance(time.Minute)
		if st := l.State(); st.Outcomes[Deleted] != 300 || st.Loops != 0 {
			b.Errorf("got %d jobs done and %d loops, want 300 and 0", st.Outcomes[Deleted], st.Loops)
		}
		b.mustFinish()
	})
}

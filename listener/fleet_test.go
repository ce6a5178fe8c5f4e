package listener

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/queue"
)

// fleet is a number of instances on one queue, which count when they poll.
type fleet struct {
	*bundle
	listeners []*Listener[job]
	logs      []*requestLog
	pickups   []time.Duration // from when a message was put; guarded by mu
	put       time.Time       // guarded by mu
	mu        sync.Mutex
	finish    func()
}

// startFleet starts instances at the same time.
func (b *bundle) startFleet(instances int, set func(*Options[job])) *fleet {
	f := &fleet{bundle: b}
	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	for i := range instances {
		o := options()
		o.Seed = uint64(i + 1)
		set(o)
		requests := &requestLog{}
		l := New(&recordingQueue{Queue: b.queue.Queue, requestLog: requests}, func(context.Context, *Message[job]) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.pickups = append(f.pickups, time.Since(f.put))
			return nil
		}, o)
		f.listeners, f.logs = append(f.listeners, l), append(f.logs, requests)
		running.Go(func() {
			if err := l.Run(ctx); err != nil {
				b.Error(err)
			}
		})
	}
	f.finish = func() { stop(); running.Wait() }
	return f
}

// polls returns when the instances polled after a time, in order.
func (f *fleet) polls(after time.Time) (at []time.Duration) {
	for _, requests := range f.logs {
		for _, r := range requests.since(after, "dequeue") {
			at = append(at, r.at.Sub(after))
		}
	}
	slices.Sort(at)
	return at
}

// C-12: instances that start together poll once per Max together, from the first period on, and
// are spread over it. Without a random phase they would all poll within a tenth of the period.
func TestAFleetPollsOncePerMaxTogether(t *testing.T) {
	if testing.Short() {
		t.Skip("plays a fleet")
	}
	const instances, Max = 20, 10 * time.Second
	bubble(t, func(b *bundle) {
		f := b.startFleet(instances, func(o *Options[job]) {
			o.Fetch.Idle = Idle{Min: Max, Max: Max, Fleet: instances}
		})
		begin := b.begin.Add(1) // after the first polls, which are at the start
		advance(24 * time.Hour)
		f.finish()
		polls := f.polls(begin)
		if n, most := len(polls), int(24*time.Hour/Max)+instances; n > most || n < 24*360*10/11 {
			t.Errorf("%d instances polled %d times in a day, want %d…%d", instances, n, 24*360*10/11, most)
		}
		perPeriod := instances * Max
		for period := time.Duration(0); period < 24*time.Hour-perPeriod; period += perPeriod {
			windows, most := map[time.Duration]int{}, 0
			for _, at := range polls {
				if at >= period && at < period+perPeriod {
					windows[at/Max]++
					most = max(most, windows[at/Max])
				}
			}
			// Of 20 windows, 20 independent polls hit 12.8 on average, with a deviation of 1.3.
			if len(windows) < 6 || most > 9 {
				t.Fatalf("in the period from %v the polls hit %d of %d windows of %v, up to %d the same; want them spread", period, len(windows), instances, Max, most)
			}
		}
		for i, requests := range f.logs {
			own := requests.since(begin, "dequeue")
			for n := 2; n < len(own); n++ {
				if gap := own[n].at.Sub(own[n-1].at); gap < perPeriod || gap > perPeriod*11/10 {
					t.Fatalf("instance %d: polled again after %v, want %v…%v", i, gap, perPeriod, perPeriod*11/10)
				}
			}
		}
	})
}

// Instances that run out of work together are spread again.
func TestAFleetThatRunsOutOfWorkIsSpread(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates many listeners")
	}
	const instances, Max = 20, 10 * time.Second
	bubble(t, func(b *bundle) {
		f := b.startFleet(instances, func(o *Options[job]) {
			o.Fetch.Idle, o.Concurrency = Idle{Min: Max, Max: Max, Fleet: instances}, 32
		})
		advance(3 * instances * Max)
		for range 3 {
			b.put(2000 * instances)
			for _, l := range f.listeners {
				l.current().tell(event{what: noticed}) // all are busy at once
			}
			advance(0)
			windows, at := map[time.Duration]int{}, time.Now()
			advance(instances * Max)
			for _, poll := range f.polls(at) {
				windows[poll/Max]++
			}
			if left := b.depth(b.queue); left != 0 || len(windows) < 6 {
				t.Errorf("%d messages left; the polls afterwards hit %d of %d windows of %v, want them spread", left, len(windows), instances, Max)
			}
			advance(3 * instances * Max)
		}
		f.finish()
	})
}

// A message waits for about Fleet × Max / (n + 1) on average, and never longer than 1.1 × Fleet × Max.
func TestAFleetPicksUpAMessageWithinItsPeriod(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates hours of many listeners")
	}
	const Max, messages = 10 * time.Second, 1500
	for _, c := range []struct{ instances, fleet int }{{5, 5}, {5, 20}, {1, 0}, {1, 1}, {20, 20}, {1, 20}}[:suitetest.Size(3, 6)] {
		bubble(t, func(b *bundle) {
			f := b.startFleet(c.instances, func(o *Options[job]) {
				o.Fetch.Idle = Idle{Min: Max, Max: Max, Fleet: c.fleet}
			})
			period := Max * time.Duration(max(c.fleet, 1))
			random := rand.New(rand.NewPCG(1, 2))
			for range messages {
				advance(period + time.Duration(random.Float64()*float64(period))) // at any phase
				f.mu.Lock()
				f.put = time.Now()
				f.mu.Unlock()
				b.put(1)
				advance(period * 11 / 10)
			}
			f.finish()
			var sum, longest time.Duration
			for _, one := range f.pickups {
				sum, longest = sum+one, max(longest, one)
			}
			mean := sum / messages
			want := 1.05 * float64(period) / float64(c.instances+1)
			// An instance that takes a message draws a new phase and leaves a gap where it was.
			if ratio := float64(mean) / want; len(f.pickups) != messages || ratio < 0.92 || ratio > 1.15 || longest > period*11/10 {
				t.Errorf("%d instances of a fleet of %d: %d of %d handled, mean pickup %v, longest %v; want %v, and %v at most",
					c.instances, c.fleet, len(f.pickups), messages, mean, longest, time.Duration(want), period*11/10)
			}
		})
	}
}

// The number of instances can be changed, and each change is spread anew.
func TestTheFleetCanBeChanged(t *testing.T) {
	const instances, Max = 10, 10 * time.Second
	bubble(t, func(b *bundle) {
		f := b.startFleet(instances, func(o *Options[job]) { o.Fetch.Idle = Idle{Min: Max, Max: Max} })
		advance(time.Second)
		for _, c := range []struct{ fleet, most int }{{0, 3600}, {10, 360}, {30, 120}, {1, 3600}, {10, 360}} {
			for _, l := range f.listeners {
				if err := l.Configure(Settings{Idle: Idle{Min: Max, Max: Max, Fleet: c.fleet}}); err != nil {
					t.Fatal(err)
				}
			}
			at := time.Now()
			advance(time.Hour)
			n := len(f.polls(at))
			if n > c.most+2*instances || n < c.most*10/11-2*instances {
				t.Errorf("fleet %d: %d polls in an hour, want about %d", c.fleet, n, c.most)
			}
		}
		f.finish()
	})
}

func TestABadFleetIsRefused(t *testing.T) {
	for _, c := range []struct {
		idle Idle
		want string
	}{
		{Idle{Fleet: -1}, "must not be negative"},
		{Idle{Fleet: math.MaxInt}, "century"},
		{Idle{Fleet: math.MaxInt32, Max: 24 * time.Hour}, "century"},
		{Idle{Fleet: 2, Max: math.MaxInt64}, "century"},
	} {
		o := options()
		o.Fetch.Idle = c.idle
		if err := New(named{}, nothing, o).Run(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v, want %q", c.idle, err, c.want)
		}
	}
	o := options()
	o.Fetch.Idle, o.Fetch.QueueEmpty = Idle{Fleet: 3}, func(int) (time.Duration, bool) { return time.Second, false }
	if err := New(named{}, nothing, o).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "QueueEmpty") {
		t.Errorf("with QueueEmpty: got %v, want a refusal", err)
	}
	for _, fine := range []Idle{{Fleet: 1, Max: longestFleetWait}, {Fleet: 100 * 365 * 24 * 3600}, {Fleet: 1000}} {
		if got, err := idleWithDefaults(fine); err != nil || time.Duration(fine.Fleet)*got.Max/10*11 < got.Max {
			t.Errorf("%+v: got %v, want no error", fine, err)
		}
	}
}

// named is a queue that has only a name.
type named struct{ queue.Queue }

func (named) Name() queue.Name             { return queue.Name{Account: "test", Queue: "jobs"} }
func (n named) Sibling(string) queue.Queue { return n }

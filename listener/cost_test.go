package listener_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/listener"
)

// costSeed makes latencies and handling times the same in every run.
const costSeed = 17

// slowNetwork is a network with the latency of storage: most requests take some milliseconds,
// one in fifty takes a hundred more.
type slowNetwork struct {
	next http.RoundTripper

	mu     sync.Mutex
	random *rand.Rand // guarded by mu
}

func newSlowNetwork(next http.RoundTripper) http.RoundTripper {
	return &slowNetwork{next: next, random: rand.New(rand.NewPCG(costSeed, 1))}
}

func (s *slowNetwork) latency() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := 2*time.Millisecond + time.Duration(s.random.ExpFloat64()*float64(6*time.Millisecond))
	if s.random.IntN(50) == 0 {
		d += 100 * time.Millisecond
	}
	return d
}

func (s *slowNetwork) RoundTrip(r *http.Request) (*http.Response, error) {
	d := s.latency()
	time.Sleep(d / 2)
	response, err := s.next.RoundTrip(r)
	time.Sleep(d - d/2)
	return response, err
}

// band is a share of the handlers, in percent, and how long they take.
type band struct {
	percent  int
	from, to time.Duration
}

// mix is a distribution of handling times. None is half a lease, which is 30 s at first and
// never under 10.
type mix struct {
	name  string
	bands []band // a hundred percent together
}

var (
	short = mix{"1…40 ms", []band{{100, time.Millisecond, 40 * time.Millisecond}}}
	mixed = mix{"5 ms…4.5 s", []band{
		{60, 5 * time.Millisecond, 50 * time.Millisecond},
		{30, 50 * time.Millisecond, 500 * time.Millisecond},
		{10, 500 * time.Millisecond, 4500 * time.Millisecond},
	}}
	long = mix{"1…4.8 s", []band{{100, time.Second, 4800 * time.Millisecond}}}
)

// takes returns how long the handler of job n takes.
func (m mix) takes(n int) time.Duration {
	random := rand.New(rand.NewPCG(costSeed, uint64(n)))
	percent := random.IntN(100)
	for _, b := range m.bands {
		if percent -= b.percent; percent < 0 {
			return b.from + time.Duration(random.Int64N(int64(b.to-b.from)))
		}
	}
	panic("the bands do not add up to a hundred percent")
}

// cost is the cost of a number of completed messages, by kind of request.
type cost struct {
	mix         mix
	concurrency int
	minFetch    int     // 0 for the default
	busy        float64 // share of the slots that run a handler, over the time
	emulator.Counts
}

func (s cost) name() string {
	if s.minFetch == 0 {
		return fmt.Sprintf("%d, %s", s.concurrency, s.mix.name)
	}
	return fmt.Sprintf("%d, %s, `MinFetch` %d", s.concurrency, s.mix.name, s.minFetch)
}

func (s cost) completed() float64 { return float64(s.Operations[emulator.DeleteMessage]) }

// each returns the transactions of one kind per completed message.
func (s cost) each(op emulator.Operation) float64 { return float64(s.Operations[op]) / s.completed() }

// transactions returns the transactions per completed message.
func (s cost) transactions() float64 { return float64(s.Requests()) / s.completed() }

// batch returns the messages per dequeue.
func (s cost) batch() float64 {
	return float64(s.Messages) / float64(s.Operations[emulator.GetMessages])
}

// waiting is the minimum number of visible messages at any time.
const waiting = 1000

// C-01, C-03: the cost of a message under a backlog that never runs dry, counted at the
// service: dequeues, deletes, readings of the depth, renewals.
func TestCostUnderLoad(t *testing.T) {
	leastBusy := map[string]float64{short.name: 0.5, mixed.name: 0.75, long.name: 0.85} // at 64, the default
	bounds := map[int]float64{64: 1.10, 256: 1.045, 512: 1.04}                          // transactions a message, by concurrency
	var loads []*cost
	for _, c := range []int{16, 32, 64, 128, 256, 512} {
		loads = append(loads, &cost{mix: mixed, concurrency: c})
	}
	for _, c := range []int{64, 256, 512} {
		loads = append(loads, &cost{mix: short, concurrency: c}, &cost{mix: long, concurrency: c})
	}
	// The effect of MinFetch at lower concurrency.
	loads = append(loads, &cost{mix: mixed, concurrency: 64, minFetch: 16}, &cost{mix: mixed, concurrency: 128, minFetch: 28})
	if testing.Short() {
		loads = loads[2:3] // the default
	}
	t.Run("run", func(t *testing.T) {
		for _, load := range loads {
			simulate(t, load.name(), func(t *testing.T) {
				load.Counts, load.busy = consume(t, *load)
				if bound, ok := bounds[load.concurrency]; ok && load.transactions() > bound {
					t.Errorf("Concurrency %d: got %.4f transactions a message, want at most %.3f", load.concurrency, load.transactions(), bound)
				}
				if least := leastBusy[load.mix.name]; !briefly() && load.concurrency == 64 && load.minFetch == 0 && load.busy < least {
					t.Errorf("Concurrency 64, %s: got %.3f of the slots busy, want at least %v", load.mix.name, load.busy, least)
				}
			})
		}
	})
	t.Log("\n" + costTable(loads))
}

// briefly reports whether few messages are consumed. Then the share of the busy slots is too small: of the
// handlers that take long, those that still run at the end do not count.
func briefly() bool { return raced || !*whole }

// whole asks for the counts that docs/cost.md shows.
var whole = flag.Bool("whole", false, "simulate the whole day, a million records and a load of two dozen messages for each slot, rather than a part")

// consume runs a listener and returns what the server counted between two times: when every
// slot has handled one message, and when it has handled two dozen. At both times the same
// number of messages is in flight, whose dequeues are paid and whose deletes are not. It also returns
// the share of the slots that ran a handler in between.
func consume(t *testing.T, load cost) (emulator.Counts, float64) {
	c := newCloud(t, newSlowNetwork)
	first, last := int64(load.concurrency), int64(max(24*load.concurrency, 3000))
	if briefly() {
		last = max(6*first, 1000)
	}
	for n := range last + first + waiting {
		if _, err := c.direct.Enqueue(t.Context(), fmt.Sprintf(`{"N":%d}`, n), nil); err != nil {
			t.Fatal(err)
		}
	}
	var handled, busy atomic.Int64
	begin, end := make(chan struct{}), make(chan struct{})
	o := dayOptions()
	o.Concurrency, o.Fetch.MinFetch = load.concurrency, load.minFetch
	o.OnError = func(err error) { t.Error(err) }
	finish := start(t, listener.New(c.queue, func(_ context.Context, j *listener.Message[dayJob]) error {
		takes := load.mix.takes(j.Body.N)
		time.Sleep(takes)
		busy.Add(int64(takes))
		switch handled.Add(1) {
		case first:
			close(begin)
		case last:
			close(end)
		}
		return nil
	}, o))
	<-begin
	before, began, busyBefore := c.server.Counts(), time.Now(), busy.Load()
	<-end
	after, took := c.server.Counts(), time.Since(began)
	share := float64(busy.Load()-busyBefore) / float64(took) / float64(load.concurrency)
	properties, err := c.direct.Properties(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	finish()
	inFlight := after.Messages - after.Operations[emulator.DeleteMessage]
	if left := properties.Depth - inFlight; left < waiting {
		t.Errorf("got %d messages waiting at the end, want at least %d", left, waiting)
	}
	if after.EmptyGets > 0 || len(after.Statuses) != 1 {
		t.Errorf("got %d empty polls and statuses %v, want none and one status", after.EmptyGets, after.Statuses)
	}
	return between(before, after), share
}

// between returns what was counted between two snapshots.
func between(before, after emulator.Counts) emulator.Counts {
	after.Messages -= before.Messages
	for op, n := range before.Operations {
		after.Operations[op] -= n
	}
	return after
}

// costTable is the table of docs/cost.md.
func costTable(loads []*cost) string {
	lines := [][]string{{
		"`Concurrency`, handlers", "dequeues", "batch", "deletes", "properties", "updates",
		"transactions a message", "a million at " + prices[0].name, "slots busy",
	}}
	for _, s := range loads {
		p := prices[0]
		lines = append(lines, []string{
			s.name(),
			fmt.Sprintf("%.4f", s.each(emulator.GetMessages)), fmt.Sprintf("%.1f", s.batch()), "1",
			fmt.Sprintf("%.4f", s.each(emulator.GetQueueMetadata)), fmt.Sprintf("%.4f", s.each(emulator.UpdateMessage)),
			fmt.Sprintf("%.4f", s.transactions()), fmt.Sprintf("$%.4f", s.transactions()*1e6/p.transaction*p.dollars),
			fmt.Sprintf("%.1f %%", 100*s.busy),
		})
	}
	return markdown(lines)
}

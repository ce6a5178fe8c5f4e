package listener_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/big"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/wakeup"
)

// The day of the requirements' cost example: a quarter of eight hours is work, so that a loop
// is idle for the rest and the night (C-05).
const (
	workday   = 8 * time.Hour
	busy      = workday / 4
	idleHours = 24*time.Hour - busy
	month     = 30 // days
	manyLoops = 200
)

// raced reports whether the race detector is on. It makes these tests ten times slower, so they
// then simulate less.
var raced = func() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}()

// prices are those of C-04: the original one and its later update.
var prices = []struct {
	name        string
	dollars     float64 // for a unit of transactions
	transaction float64 // how many a unit is
}{
	{"$0.01/10,000", 0.01, 10_000},
	{"$0.01/100,000", 0.01, 100_000},
}

// monthly returns the bill for a number of transactions a day (C-09).
func monthly(perDay float64, price int) float64 {
	p := prices[price]
	return perDay * month / p.transaction * p.dollars
}

// cloud is an in-process Azure queue: azqueue, the protocol and the engine, all on the clock of
// the bubble it is made in.
type cloud struct {
	server *emulator.Server
	queue  *azurequeue.Queue // for the listener
	direct queue.Queue       // the same queue without the protocol; its requests are not counted
}

// wire passes the requests of azqueue to the in-process server.
type wire struct{ http.RoundTripper }

func (w wire) Do(r *http.Request) (*http.Response, error) { return w.RoundTrip(r) }

// newCloud returns a cloud with the given network, or none.
func newCloud(t *testing.T, network func(http.RoundTripper) http.RoundTripper) *cloud {
	t.Helper()
	engine := must(localqueue.New(nil))
	server := must(emulator.New(engine, nil))
	var transport http.RoundTripper = server
	if network != nil {
		transport = network(server)
	}
	q, err := azurequeue.Open(server.ConnectionString(), "jobs", &azurequeue.Options{Transport: wire{transport}})
	if err != nil {
		t.Fatal(err)
	}
	direct := engine.Queue(q.Name())
	if err := direct.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return &cloud{server: server, queue: q, direct: direct}
}

// start runs a listener until the returned function stops it and waits for its end.
func start[T any](t *testing.T, l *listener.Listener[T]) (finish func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	return func() {
		t.Helper()
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: got error %v, want nil", err)
		}
	}
}

type dayJob struct{ N int }

func idle(context.Context, *listener.Message[dayJob]) error { return nil }

func dayOptions() *listener.Options[dayJob] {
	return &listener.Options[dayJob]{Logger: slog.New(slog.DiscardHandler)}
}

// row is one line of the table: how often loops polled in the simulated time, and how often that
// is in a day of 22 idle hours.
type row struct {
	name   string
	polls  int64
	within time.Duration
	later  int64 // polls in the same time afterwards, if they are fewer; else 0
}

func (r row) perDay() float64 {
	times := float64(idleHours) / float64(r.within)
	if r.later > 0 {
		return float64(r.polls) + float64(r.later)*(times-1)
	}
	return float64(r.polls) * times
}

// pollsWithin runs a listener on an empty queue and returns how many requests the server
// counted at t in [0, d), all of which must be empty polls (C-01).
func pollsWithin(t *testing.T, d time.Duration, o *listener.Options[dayJob]) int64 {
	t.Helper()
	c := newCloud(t, nil)
	finish := start(t, listener.New(c.queue, idle, o))
	time.Sleep(d - time.Nanosecond)
	synctest.Wait()
	after := c.server.Counts()
	finish()
	if after.EmptyGets != after.Requests() {
		t.Errorf("got %d requests of which %d were empty polls, want all", after.Requests(), after.EmptyGets)
	}
	return after.EmptyGets
}

// The cost example of the requirements, simulated and counted at the service, at its prices
// (C-04): first loops without back-off, the baseline (C-13; C-05 to C-09: C-06, C-07, C-08), then with
// back-off (C-11), then loops that shrink (C-10, L-24), then without loops (C-11, L-39).
func TestADayInMilliseconds(t *testing.T) {
	everySecond := func(int) (time.Duration, bool) { return time.Second, false }
	if testing.Short() {
		t.Skip("simulates hours of many loops")
	}
	day := idleHours
	if raced || !*whole {
		day /= 20
	}
	fixed := &row{name: "1 loop, every second", within: day}
	many := &row{name: "200 loops, every second", within: time.Minute}
	shrunk := &row{name: "200 loops, shrinking"}
	pushed := &row{name: "push, a poll every 60 s", within: max(day, min(idleHours, 3000*time.Minute))}
	silent := &row{name: "push, no polls", within: idleHours}
	maxima := []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, 60 * time.Second}
	caps := make([]*row, len(maxima))
	for i, idleMax := range maxima { // where the day is short, long enough that the curve up to Max does not matter
		caps[i] = &row{
			name:   fmt.Sprintf("1 loop, back-off to %.0f s", idleMax.Seconds()),
			within: max(day, min(idleHours, 3000*idleMax)),
		}
	}

	t.Run("run", func(t *testing.T) {
		simulate(t, "OneLoopEverySecond", func(t *testing.T) {
			o := dayOptions()
			o.Fetch.QueueEmpty = everySecond
			fixed.polls = pollsWithin(t, day, o)
			if want := int64(day / time.Second); fixed.polls != want {
				t.Errorf("got %d polls in [0, %v), want %d", fixed.polls, day, want)
			}
			if fixed.perDay() != 79_200 {
				t.Errorf("got %.0f polls in 22 h, want 79,200", fixed.perDay())
			}
		})
		simulate(t, "TwoHundredLoopsCostTwoHundredTimesOne", func(t *testing.T) {
			o := dayOptions()
			o.Fetch.QueueEmpty = everySecond
			o.Fetch.Loops = listener.Loops{Min: manyLoops}
			o.Concurrency = manyLoops * queue.MaxBatch
			many.polls = pollsWithin(t, many.within, o)
			if want := int64(manyLoops * 60); many.polls != want {
				t.Errorf("got %d polls of %d loops in [0, 1 min), want %d", many.polls, manyLoops, want)
			}
		})
		for i, idleMax := range maxima {
			simulate(t, fmt.Sprintf("BackOffTo%v", idleMax), func(t *testing.T) {
				o := dayOptions()
				o.Fetch.Idle.Max = idleMax
				polls := pollsWithin(t, caps[i].within, o)
				caps[i].polls = polls
				// The surviving loop sleeps Max × U[1, 1.1], so one poll per Max is a bound
				// that is nearly reached.
				if bound := int64(caps[i].within / idleMax); polls > bound || polls <= bound*9/10 {
					t.Errorf("got %d polls, want 0.9…1.0 of %d", polls, bound)
				}
			})
		}
		simulate(t, "Push", func(t *testing.T) {
			o := dayOptions()
			o.Wakeups = new(wakeup.Bus)
			pushed.polls = pollsWithin(t, pushed.within, o)
			// It polls up to 10 % later than SafetyPoll says, and first at the start.
			if bound := int64(pushed.within/time.Minute) + 1; pushed.polls > bound || pushed.polls <= bound*9/10 {
				t.Errorf("got %d polls, want 0.9…1.0 of %d", pushed.polls, bound)
			}
		})
		simulate(t, "PushWithoutASafetyPoll", func(t *testing.T) {
			o := dayOptions()
			o.Wakeups, o.Fetch.SafetyPoll = new(wakeup.Bus), -1
			silent.polls = pollsWithin(t, silent.within, o)
			if silent.polls != 1 { // at the start: work may be there
				t.Errorf("got %d polls in %v, want the first one only", silent.polls, silent.within)
			}
		})
		simulate(t, "TwoHundredLoopsShrinkToOne", func(t *testing.T) { shrink(t, shrunk) })
	})
	if t.Failed() {
		return
	}
	checkBills(t, fixed, many, caps)
	t.Log("\n" + dayTable(slices.Concat([]*row{fixed, many, shrunk}, caps, []*row{pushed, silent})))
}

// simulate runs a parallel subtest in a bubble.
func simulate(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, f)
	})
}

// shrink starts 200 loops, and counts the polls in the first and in the second idle hour.
func shrink(t *testing.T, r *row) {
	c := newCloud(t, nil)
	if _, err := c.direct.Enqueue(t.Context(), `{"N":1}`, nil); err != nil {
		t.Fatal(err)
	}
	o := dayOptions()
	o.Fetch.Loops = listener.Loops{Max: manyLoops, Pause: -1}
	o.Concurrency = manyLoops * queue.MaxBatch
	o.Fetch.QueueWorkDetected = func(scaling.Load) int { return manyLoops }
	l := listener.New(c.queue, idle, o)
	finish := start(t, l)
	synctest.Wait()
	if st := l.State(); st.LoopsPeak != manyLoops {
		t.Errorf("LoopsPeak: got %d, want %d", st.LoopsPeak, manyLoops)
	}
	r.within = time.Hour
	time.Sleep(r.within - time.Nanosecond)
	synctest.Wait()
	r.polls = c.server.Counts().EmptyGets
	if st := l.State(); st.Loops != 1 || st.LoopsStarted != manyLoops {
		t.Errorf("got %d of %d loops left after an hour, want 1 of %d", st.Loops, st.LoopsStarted, manyLoops)
	}
	time.Sleep(r.within)
	synctest.Wait()
	r.later = c.server.Counts().EmptyGets - r.polls
	finish()
	// Until its curve has reached one second a loop polls four or five times.
	if bound := int64(manyLoops*6 + 3600); r.polls > bound {
		t.Errorf("got %d polls in the first hour, want at most %d", r.polls, bound)
	}
	if r.later > 3600 {
		t.Errorf("got %d polls in the second hour, want at most 3600", r.later)
	}
}

// checkBills compares the counts with the numbers of C-07, C-08 and C-11, to the cent or to
// their digits.
func checkBills(t *testing.T, one, many *row, caps []*row) {
	t.Helper()
	equal := func(got, want, unit float64) bool { return math.Abs(got-want) < unit/2+1e-9 }
	if got := monthly(one.perDay(), 0); !equal(got, 2.376, 0.001) || !equal(got, 2.38, 0.01) {
		t.Errorf("one loop a month: got $%.4f, want 2.376, rounded 2.38", got)
	}
	if got := monthly(one.perDay(), 1); !equal(got, 0.2376, 0.0001) {
		t.Errorf("one loop a month at the later price: got $%.4f, want 0.2376", got)
	}
	if got := many.perDay() * month; got != 475_200_000 {
		t.Errorf("transactions a month: got %.0f, want 475,200,000", got)
	}
	// the source's figures do not follow from its own formula. The check that accepts
	// the correct ones rejects them.
	for price, c := range []struct{ right, naive float64 }{{475.20, 457.2}, {47.52, 45.7}} {
		got := monthly(many.perDay(), price)
		if !equal(got, c.right, 0.01) {
			t.Errorf("%d loops a month at %s: got $%.2f, want %.2f", manyLoops, prices[price].name, got, c.right)
		}
		if equal(got, c.naive, 0.1) {
			t.Errorf("the check accepts the source's $%.1f, so it proves nothing", c.naive)
		}
	}
	for i, want := range []float64{2.376, 0.475, 0.079, 0.0396} {
		got := monthly(caps[i].perDay(), 0)
		if got > want*1.01 || got < want*0.9 {
			t.Errorf("%s, a month: got $%.4f, want 0.9…1.0 of %.4f", caps[i].name, got, want)
		}
	}
}

// dayTable is the table of docs/cost.md.
func dayTable(rows []*row) string {
	lines := [][]string{{
		"idle loops", "polls counted", "in", "a day of 22 idle hours",
		"a month at " + prices[0].name, "a month at " + prices[1].name,
	}}
	for _, r := range rows {
		lines = append(lines, []string{
			r.name, fmt.Sprint(r.polls), fmt.Sprint(r.within), fmt.Sprintf("%.0f", r.perDay()),
			dollars(r.perDay()*month, 10_000), dollars(r.perDay()*month, 100_000),
		})
	}
	return markdown(lines)
}

// dollars returns the price of transactions at $0.01 a unit, rounded half up to a hundredth of a cent. It is
// computed exactly, because amounts end in a half.
func dollars(transactions float64, unit int64) string {
	n := new(big.Rat).SetFloat64(transactions)
	return "$" + n.Mul(n, big.NewRat(1, 100*unit)).FloatString(4)
}

// markdown returns a table with aligned columns; its first line is the head.
func markdown(lines [][]string) string {
	widths := make([]int, len(lines[0]))
	for _, cells := range lines {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for n, cells := range lines {
		for i, cell := range cells {
			fmt.Fprintf(&b, "| %s%s ", cell, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
		}
		b.WriteString("|\n")
		if n > 0 {
			continue
		}
		for i, width := range widths {
			right := ":" // numbers
			if i == 0 {
				right = "-"
			}
			fmt.Fprintf(&b, "|%s%s", strings.Repeat("-", width+1), right)
		}
		b.WriteString("|\n")
	}
	return b.String()
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

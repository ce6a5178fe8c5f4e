package listener

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// managedQueue is a recording queue that can be administered, and records visibilities.
type managedQueue struct {
	*recordingQueue

	mu           sync.Mutex
	visibilities []time.Duration // of the dequeues; guarded by mu
}

func (q *managedQueue) Dequeue(ctx context.Context, n int, v time.Duration) ([]queue.Message, error) {
	q.mu.Lock()
	q.visibilities = append(q.visibilities, v)
	q.mu.Unlock()
	return q.recordingQueue.Dequeue(ctx, n, v)
}

func (q *managedQueue) SetMetadata(ctx context.Context, metadata map[string]string) error {
	return q.do("set metadata", 0, func() (int, error) { return 0, q.Queue.(queue.Manager).SetMetadata(ctx, metadata) })
}

func (q *managedQueue) Clear(ctx context.Context) error { return q.Queue.(queue.Manager).Clear(ctx) }
func (q *managedQueue) Drop(ctx context.Context) error  { return q.Queue.(queue.Manager).Drop(ctx) }

// managed returns the queue of the bundle with SetMetadata.
func (b *bundle) managed() *managedQueue { return &managedQueue{recordingQueue: b.queue} }

// visibility returns that of the last dequeue.
func (q *managedQueue) visibility() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.visibilities) == 0 {
		return 0
	}
	return q.visibilities[len(q.visibilities)-1]
}

// setMetadata replaces the metadata of the queue, as another program does. They are pairs of names
// and values.
func (b *bundle) setMetadata(pairs ...string) {
	b.Helper()
	metadata := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		metadata[pairs[i]] = pairs[i+1]
	}
	if err := b.queue.Queue.(queue.Manager).SetMetadata(b.Context(), metadata); err != nil {
		b.Fatal(err)
	}
}

// metadata returns the metadata of the queue, with names in lower case.
func (b *bundle) metadata() map[string]string {
	b.Helper()
	p, err := b.queue.Queue.Properties(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	lower := map[string]string{}
	for name, value := range p.Metadata {
		lower[strings.ToLower(name)] = value
	}
	if len(lower) != len(p.Metadata) {
		b.Errorf("the metadata %v have a name twice", p.Metadata)
	}
	return lower
}

// following returns options that follow the metadata, with a quick retry.
func following() *Options[job] {
	o := options()
	o.Metadata = ReadMetadata
	o.RetryDelay = func(int, error) time.Duration { return 0 }
	return o
}

// P-02, PM-11: threshold and visibility come from the metadata, by names in any case. An option that
// is set wins, each over its own; and without Metadata they are read for the flag that pauses only.
func TestMetadataApplyWhereNoOptionIsSet(t *testing.T) {
	for name, c := range map[string]struct {
		set            func(*Options[job])
		wantRuns       int
		wantVisibility time.Duration
		wantReadings   int
	}{
		"read":             {func(*Options[job]) {}, 2, 2 * time.Minute, 1},
		"ignored":          {func(o *Options[job]) { o.Metadata = IgnoreMetadata }, 5, 30 * time.Second, 1},
		"attempts set":     {func(o *Options[job]) { o.Poison.MaxAttempts = 3 }, 3, 2 * time.Minute, 1},
		"lost set":         {func(o *Options[job]) { o.Poison.MaxLost = 9 }, 2, 2 * time.Minute, 1},
		"first set":        {func(o *Options[job]) { o.Lease.Visibility.First = 40 * time.Second }, 2, 40 * time.Second, 1},
		"fixed":            {func(o *Options[job]) { o.Lease.Visibility = FixedVisibility(50 * time.Second) }, 2, 50 * time.Second, 1},
		"within the most":  {func(o *Options[job]) { o.Lease.Visibility.Max = time.Minute }, 2, time.Minute, 1},
		"within the least": {func(o *Options[job]) { o.Lease.Visibility.Min = 3 * time.Minute }, 2, 3 * time.Minute, 1},
	} {
		bubble(t, func(b *bundle) {
			q := b.managed()
			b.setMetadata("PoisonThreshold", "2", "DefaultTimeout", "120", "owner", "ada")
			b.send(1)
			o := following()
			c.set(o)
			runs := 0
			l := New(q, func(context.Context, *Message[job]) error { runs++; return errors.New("no") }, o)
			b.run(l)
			advance(20 * time.Second)
			if got := q.visibility(); runs != c.wantRuns || got != c.wantVisibility || q.visibilities[0] != got {
				t.Errorf("%s: %d runs and the visibilities %v, want %d and %v", name, runs, q.visibilities, c.wantRuns, c.wantVisibility)
			}
			if n := len(b.queue.sent("properties")); n != c.wantReadings {
				t.Errorf("%s: the metadata were read %d times, want %d", name, n, c.wantReadings)
			}
			b.mustFinish()
		})
	}
}

// The threshold also bounds how many starts may be lost, unless MaxLost is set.
func TestTheThresholdOfTheMetadataBoundsLostStarts(t *testing.T) {
	for name, c := range map[string]struct {
		maxLost  int
		metadata string
		wantRuns int
	}{
		"by the metadata": {0, "2", 0},
		"more":            {0, "3", 1},
		"by the option":   {3, "2", 1},
		"by the default":  {0, "x", 1},
	} {
		bubble(t, func(b *bundle) {
			b.setMetadata("poisonthreshold", c.metadata)
			b.putText("millrace/1?id=7&st=2\n{\"N\":1}")
			for range 3 {
				b.loseDelivery()
			}
			o := following()
			o.Poison.MaxLost = c.maxLost
			runs := 0
			b.run(New(b.queue, func(context.Context, *Message[job]) error { runs++; return nil }, o))
			advance(time.Minute)
			b.mustFinish()
			records := b.poisonRecords()
			if runs != c.wantRuns || len(records) != 1-c.wantRuns || c.wantRuns == 0 && records[0].Reason != poison.ReasonLost {
				t.Errorf("%s: %d runs, records %+v; want %d runs, or a record of lost starts", name, runs, records, c.wantRuns)
			}
		})
	}
}

// A kind with attempts of its own keeps them.
func TestTheAttemptsOfAKindWinOverTheMetadata(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.setMetadata("poisonthreshold", "2")
		b.putText("millrace/1?id=7\n{\"N\":1}")
		b.putText("millrace/2?id=8&kd=other\n{\"N\":1}")
		var runs, own int
		o := &Options[any]{Logger: options().Logger, Metadata: ReadMetadata, RetryDelay: func(int, error) time.Duration { return 0 }}
		b.run(must(NewKinds(b.queue, []Kind{
			dispatcher.Jobs[job]{Handler: func(context.Context, *Message[job]) error { runs++; return errors.New("no") }}.Kind("", nil),
			dispatcher.Jobs[job]{Handler: func(context.Context, *Message[job]) error { own++; return errors.New("no") }}.Kind("other", &KindOptions{MaxAttempts: 4}),
		}, o)))
		advance(time.Minute)
		b.mustFinish()
		if runs != 2 || own != 4 {
			t.Errorf("%d runs, and %d of the kind with 4 attempts; want 2 and 4", runs, own)
		}
	})
}

// A change takes effect while the listener runs, within about a minute: another value, a lower one,
// and none.
func TestAChangeOfMetadataTakesEffect(t *testing.T) {
	bubble(t, func(b *bundle) {
		q := b.managed()
		runs := 0
		o := following()
		l := New(q, func(context.Context, *Message[job]) error { runs++; return errors.New("no") }, o)
		b.run(l)
		for _, c := range []struct {
			metadata       []string
			wantRuns       int
			wantVisibility time.Duration
		}{
			{nil, 5, 30 * time.Second},
			{[]string{"poisonthreshold", "3", "defaulttimeout", "120"}, 3, 2 * time.Minute},
			{[]string{"poisonthreshold", "7", "defaulttimeout", "300"}, 7, 5 * time.Minute},
			{[]string{"poisonthreshold", "1", "defaulttimeout", "40"}, 1, 40 * time.Second},
			{[]string{"owner", "ada"}, 5, 30 * time.Second},
		} {
			b.setMetadata(c.metadata...)
			advance(62 * time.Second)
			runs = 0
			b.send(1)
			advance(20 * time.Second)
			if got := q.visibility(); runs != c.wantRuns || got != c.wantVisibility {
				t.Errorf("%v: %d runs, visibility %v; want %d and %v", c.metadata, runs, got, c.wantRuns, c.wantVisibility)
			}
		}
		b.mustFinish()
	})
}

// Metadata cost a request a minute, and none where the depth is read anyway.
func TestMetadataCostAtMostARequestAMinute(t *testing.T) {
	bubble(t, func(b *bundle) { // idle, with several loops
		o := following()
		o.Fetch.Loops = Loops{Min: 3, Max: 3}
		b.run(New(b.queue, nothing, o))
		advance(time.Hour)
		b.mustFinish()
		if n := len(b.queue.sent("properties")); n < 58 || n > 63 {
			t.Errorf("idle: read %d times in an hour, want about once a minute", n)
		}
	})
	readings := map[Metadata]int{}
	for _, use := range []Metadata{IgnoreMetadata, ReadMetadata} {
		bubble(t, func(b *bundle) { // a backlog, whose depth is read every half minute
			b.put(2000)
			o := options()
			o.Metadata, o.Fetch.BatchSize, o.Concurrency = use, 1, 40
			o.Fetch.QueueWorkDetected = func(Load) int { return 1 }
			b.run(New(b.queue, func(ctx context.Context, _ *Message[job]) error { return sleep(ctx, time.Second) }, o))
			advance(30 * time.Minute)
			readings[use] = len(b.queue.sent("properties"))
			b.mustFinish()
		})
	}
	if n := readings[IgnoreMetadata]; n < 30 || readings[ReadMetadata] > n+1 {
		t.Errorf("with a backlog: read %v times, want one more at most with ReadMetadata", readings)
	}
}

// What is no number in range has its default, and a person is told once, of each such value.
func TestInvalidMetadataAreReportedOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.setMetadata("poisonthreshold", "many", "defaulttimeout", "00:02:00")
		var told errorList
		o := following()
		o.OnError = told.add
		l := New(b.queue, nothing, o)
		b.run(l)
		expect := func(n int, last string) {
			t.Helper()
			advance(10 * time.Minute)
			if told.count() != n || !strings.Contains(told.text(), last) {
				t.Fatalf("told %d times: %s; want %d times, with %q", told.count(), told.text(), n, last)
			}
		}
		expect(2, `poisonthreshold = "many"`)
		setup := (*SetupError)(nil)
		if st := l.State(); !errors.As(told.at(1), &setup) || !strings.Contains(setup.Detail, `defaulttimeout = "00:02:00"`) || st.Visibility != 30*time.Second {
			t.Errorf("told %v, state %+v; want a SetupError and 30 s", told.at(1), st)
		}
		b.setMetadata("poisonthreshold", "0", "defaulttimeout", "60")
		expect(3, `poisonthreshold = "0"`)
		b.setMetadata("poisonthreshold", "7")
		expect(3, "many")
		b.setMetadata("poisonthreshold", "0")
		expect(4, `poisonthreshold = "0"`)
		b.mustFinish()
	})
}

func TestOnlyWholeNumbersInRangeAreSettings(t *testing.T) {
	for text, want := range map[string]int{
		"1": 1, "7": 7, "2147483647": math.MaxInt32,
		"0": 0, "-1": 0, "": 0, "seven": 0, "1.5": 0, "2147483648": 0, "99999999999999999999": 0, "1e3": 0,
	} {
		got, err := settingIn(map[string]string{"other": "3", "PoisonThreshold": text}, thresholdName, math.MaxInt32)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	if got, err := settingIn(map[string]string{"n": " 7 "}, "n", 7); got != 7 || err != nil {
		t.Errorf("with spaces, the highest: got %d, %v; want 7", got, err)
	}
	if got, err := settingIn(map[string]string{"other": "3"}, thresholdName, 9); got != 0 || err != nil {
		t.Errorf("without the name: got %d, %v; want 0 and no error", got, err)
	}
	if got, err := settingIn(map[string]string{"n": "10"}, "n", 9); got != 0 || err == nil || !strings.Contains(err.Error(), "1…9") {
		t.Errorf("above the highest: got %d, %v; want an error with the range", got, err)
	}
}

// Nothing is dequeued before the settings are known: messages could become poison by thresholds that
// are not those of the queue. Once they are known, a failed reading stops nothing.
func TestNothingIsDequeuedBeforeTheMetadataAreKnown(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.setMetadata("poisonthreshold", "9")
		b.send(1)
		var down atomic.Bool
		down.Store(true)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "properties" && down.Load() {
				return &queue.Error{Op: op, Kind: queue.ErrUnavailable, Status: 503}
			}
			return act()
		}
		var told errorList
		runs := 0
		o := following()
		o.OnError = told.add
		l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return errors.New("no") }, o)
		b.run(l)
		advance(time.Minute)
		if n := len(b.queue.sent("dequeue")); n != 0 || l.State().Ready() || !strings.Contains(told.text(), "nothing is dequeued until the metadata are known") || len(b.queue.sent("properties")) > 20 {
			t.Errorf("%d dequeues, state %+v, told %d times, %d readings; want none, not ready, told, few", n, l.State(), told.count(), len(b.queue.sent("properties")))
		}
		down.Store(false)
		advance(40 * time.Second)
		if runs != 9 {
			t.Errorf("%d runs, want 9", runs)
		}
		down.Store(true)
		before := told.count()
		advance(5 * time.Minute)
		b.send(1)
		advance(20 * time.Second)
		if st := l.State(); runs != 18 || !st.Ready() || told.count() < before+3+9 {
			t.Errorf("%d runs, state %+v, told %d times; want 18, ready, told of each reading", runs, st, told.count()-before)
		}
		b.mustFinish()
	})
}

// The metadata of a queue that comes into being later apply to its first message, also when it was
// dropped in between.
func TestTheMetadataOfANewQueueApplyAtOnce(t *testing.T) {
	for _, create := range []bool{false, true} {
		bubble(t, func(b *bundle) {
			manager := b.queue.Queue.(queue.Manager)
			b.setMetadata("poisonthreshold", "2")
			runs := 0
			o := following()
			o.Create = create
			b.run(New(b.queue, func(context.Context, *Message[job]) error { runs++; return errors.New("no") }, o))
			advance(time.Second)
			if err := manager.Drop(b.Context()); err != nil {
				t.Fatal(err)
			}
			advance(2 * time.Minute) // the service needs a while
			want := 5
			if !create {
				want = 3
				if err := manager.Create(b.Context(), map[string]string{"poisonthreshold": "3"}); err != nil {
					t.Fatal(err)
				}
			}
			b.send(1)
			advance(20 * time.Second)
			if runs != want {
				t.Errorf("created by the listener: %v: %d runs, want %d", create, runs, want)
			}
			b.mustFinish()
		})
	}
}

// A key that may not read properties ends the run with advice, as one that may not dequeue does. What
// the queue advises is said too.
func TestAKeyThatMayNotReadMetadataEndsTheRun(t *testing.T) {
	for _, advice := range []string{"", "give the identity the role"} {
		bubble(t, func(b *bundle) {
			b.queue.intercept = func(op string, act func() error) error {
				if op == "properties" {
					return &queue.Error{Op: op, Queue: b.queue.Name(), Kind: queue.ErrUnauthorized, Status: 403, Hint: advice}
				}
				return act()
			}
			ctx, stop := context.WithTimeout(b.Context(), time.Minute)
			defer stop()
			err := New(b.queue, nothing, following()).Run(ctx)
			if text := fmt.Sprint(err); !errors.Is(err, queue.ErrUnauthorized) || !strings.Contains(text, "Options.Metadata needs the permission") || !strings.Contains(text, advice) {
				t.Errorf("Run: got %v, want advice about Options.Metadata, and %q", err, advice)
			}
		})
	}
}

// A stop while the metadata are read is not followed by a dequeue.
func TestAStopWhileMetadataAreReadEndsTheLoop(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(5)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "properties" {
				time.Sleep(5 * time.Second)
			}
			return act()
		}
		b.run(New(b.queue, nothing, following()))
		advance(time.Second)
		b.mustFinish()
		if n, updates := len(b.queue.sent("dequeue")), len(b.queue.sent("update")); n != 0 || updates != 0 {
			t.Errorf("%d dequeues and %d updates after the stop, want none", n, updates)
		}
	})
}

// The log says which settings came from the metadata, once for each change.
func TestSettingsFromMetadataAreLogged(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.setMetadata("poisonthreshold", "2")
		var log strings.Builder
		o := following()
		o.Logger = textLogger(&log)
		b.run(New(b.queue, nothing, o))
		advance(5 * time.Minute)
		b.setMetadata("poisonthreshold", "2", "defaulttimeout", "90")
		advance(5 * time.Minute)
		b.mustFinish()
		const line = "settings in the metadata of the queue"
		if n := strings.Count(log.String(), line); n != 2 || !strings.Contains(log.String(), "poisonthreshold=2 defaulttimeout=90") {
			t.Errorf("logged %d times, want once a change:\n%s", n, log.String())
		}
	})
}

func TestAnImpossibleUseOfMetadataIsRefused(t *testing.T) {
	bubble(t, func(b *bundle) {
		for use, want := range map[Metadata]string{WriteMetadata: "queue.Manager", Metadata(3): "none of", Metadata(-1): "none of"} {
			o := options()
			o.Metadata = use
			ctx, stop := context.WithTimeout(b.Context(), time.Minute)
			defer stop()
			if err := New(b.queue, nothing, o).Run(ctx); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%d: got %v, want %q", use, err, want)
			}
		}
	})
}

// Where the depth is read more often than once a minute, that reading alone brings the metadata; and
// it brings none to a listener that ignores them.
func TestMetadataComeWithTheDepth(t *testing.T) {
	for _, c := range []struct {
		use          Metadata
		wantAttempts int64
		wantTimeout  string
	}{{IgnoreMetadata, 5, ""}, {ReadMetadata, 9, ""}, {WriteMetadata, 9, "100"}} {
		bubble(t, func(b *bundle) {
			b.put(3000)
			o := options()
			o.Metadata, o.Fetch.BatchSize, o.Concurrency = c.use, 1, 40
			o.Fetch.QueueWorkDetected = func(Load) int { return 30 }
			var attempts atomic.Int64
			l := New(b.managed(), func(ctx context.Context, m *Message[job]) error {
				attempts.Store(int64(m.MaxAttempts))
				return sleep(ctx, 50*time.Second)
			}, o)
			b.run(l)
			advance(30 * time.Second)
			b.setMetadata("poisonthreshold", "9")
			advance(40 * time.Minute)
			if got := attempts.Load(); got != c.wantAttempts || b.metadata()["defaulttimeout"] != c.wantTimeout {
				t.Errorf("%d: %d attempts, metadata %v; want %d and defaulttimeout %q", c.use, got, b.metadata(), c.wantAttempts, c.wantTimeout)
			}
			if got, want := l.State().Requests, int64(len(b.queue.log)); got != want {
				t.Errorf("%d: %d requests counted of %d", c.use, got, want)
			}
			l.Halt()
			b.mustFinish()
		})
	}
}

// count returns how many errors there are so far.
func (l *errorList) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list)
}

// at returns one of the errors so far.
func (l *errorList) at(i int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.list[i]
}

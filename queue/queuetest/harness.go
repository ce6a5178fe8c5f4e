package queuetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/queue"
)

// Harness connects the suite to a backend. Open is required; the zero values of the other fields
// describe a backend without HTTP that behaves like the service.
type Harness struct {
	// Open returns a queue with this name, which does not exist yet; names are unique in this
	// process. Each test has a bubble of its own, so in a bubble everything that the queue needs
	// must be created here. Use t.Cleanup to clean up.
	Open func(t *testing.T, name string) queue.Manager

	// Bubble runs each test in a testing/synctest bubble with simulated time. The backend must
	// then be in this process and read time from package time. Defaults to false: real time,
	// parallel tests.
	Bubble bool

	// HTTP means that the backend uses HTTP: errors have a status, a storage error code and a
	// request id, and the size of an escaped text is limited too. Defaults to false.
	HTTP bool

	// Requests returns the number of requests that q and its siblings have sent so far, to show
	// that invalid arguments send none. Defaults to nil, which skips that check.
	Requests func(q queue.Manager) int

	// Secrets are texts that errors must not contain, such as keys. Receipts are always checked.
	// Defaults to none.
	Secrets []string

	// Quirks are known differences between the backend and the service.
	Quirks Quirks
}

// Quirks are known differences between a backend and the service. A field that is not empty is
// the reason, which the test prints. The zero value means none.
type Quirks struct {
	// UpdatePastExpiry: an update may hide a message beyond its expiry.
	UpdatePastExpiry string

	// RecreateAtOnce: a dropped queue can be created again without waiting.
	RecreateAtOnce string

	// ListWhileCreating: a queue that is created during a list may be in two pages of it.
	ListWhileCreating string

	// LargeUnicode: a long text outside ASCII may come back changed.
	LargeUnicode string
}

// testOf is one part of a suite whose tests have an environment E.
type testOf[E any] struct {
	name string
	run  func(e E)
}

type test = testOf[*env]

// Run runs the suite against a backend, each test with a queue of its own.
func Run(t *testing.T, h Harness) {
	all := slices.Concat(traceTests, visibilityTests, receiptTests, lifeTests, peekTests, updateTests,
		propertyTests, queueTests, argumentTests, textTests, concurrencyTests,
		contextTests, siblingTests, errorTests, modelTests)
	runAll(t, h.Bubble, all, func(t *testing.T) *env {
		e := &env{T: t, h: h, ctx: t.Context(), sent: func() int { return 0 }}
		e.q = e.open()
		if h.Requests != nil {
			e.sent, e.counted = func() int { return h.Requests(e.q) }, true
		}
		return e
	})
}

func runAll[E any](t *testing.T, bubble bool, tests []testOf[E], newEnv func(t *testing.T) E) {
	for _, c := range tests {
		suitetest.Run(t, c.name, bubble, func(t *testing.T) { c.run(newEnv(t)) })
	}
}

// long is longer than any test runs on a real backend, so that a message hidden for long stays
// hidden even on a slow machine.
const long = time.Hour

// env is the environment of one test. The test's goroutine owns it, except for race.
type env struct {
	*testing.T
	h    Harness
	q    queue.Manager
	ctx  context.Context
	sent func() int // the number of requests so far; always 0 if they are not counted

	counted bool // whether requests are counted

	clock queue.Queue // used by after to observe the server's time; created when needed
}

// names numbers the queues of this process; salt keeps processes apart that
// share a backend.
var (
	names atomic.Int64
	salt  = rand.Uint32()
)

// open returns a new queue without creating it, and drops it at the end.
func (e *env) open() queue.Manager {
	e.Helper()
	q := e.h.Open(e.T, fmt.Sprintf("conform-%08x-%d", salt, names.Add(1)))
	e.Cleanup(func() { _ = q.Drop(context.Background()) }) // fails if the test dropped the queue or never created it
	return q
}

// create creates the queue without metadata.
func (e *env) create() {
	e.Helper()
	e.ok(e.q.Create(e.ctx, nil))
}

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

// is checks the kind and the form of an error.
func (e *env) is(err, kind error, doing string) {
	e.Helper()
	if !errors.Is(err, kind) {
		e.Errorf("%s: error: got %q, want %q", doing, fmt.Sprint(err), kind)
	} else {
		e.written(err)
	}
}

// written checks what every error must be: a [*queue.Error] on one line, with operation and
// queue, without secrets.
func (e *env) written(err error) {
	e.Helper()
	known := (*queue.Error)(nil)
	if !errors.As(err, &known) {
		e.Errorf("error: got %v (%T), want a *queue.Error in it", err, err)
		return
	}
	if known.Op == "" || known.Queue == (queue.Name{}) {
		e.Errorf("error: got %v, want the operation and the queue in it", err)
	}
	text := err.Error()
	if strings.ContainsAny(text, "\r\n") {
		e.Errorf("error: got several lines, want one: %q", text)
	}
	for _, s := range e.h.Secrets {
		if strings.Contains(text, s) {
			e.Errorf("error: got %q, want none with the secret %q in it", text, s)
		}
	}
}

func (e *env) enqueue(text string, o *queue.EnqueueOptions) queue.Message {
	e.Helper()
	m, err := e.q.Enqueue(e.ctx, text, o)
	e.ok(err)
	return m
}

// dequeue sends one request for up to n messages.
func (e *env) dequeue(n int, visibility time.Duration) []queue.Message {
	e.Helper()
	batch, err := e.q.Dequeue(e.ctx, n, visibility)
	e.ok(err)
	if len(batch) > n {
		e.Fatalf("dequeue: got %d messages, want at most %d", len(batch), n)
	}
	return batch
}

// take polls until it has n messages, hidden for the visibility timeout.
func (e *env) take(n int, visibility time.Duration) []queue.Message {
	e.Helper()
	var all []queue.Message
	e.until(fmt.Sprintf("%d messages are there", n), func() bool {
		all = append(all, e.dequeue(min(n-len(all), queue.MaxBatch), visibility)...)
		return len(all) == n
	})
	return all
}

func (e *env) one(visibility time.Duration) queue.Message {
	e.Helper()
	return e.take(1, visibility)[0]
}

// none checks that no message is visible.
func (e *env) none(when string) {
	e.Helper()
	if batch := e.dequeue(queue.MaxBatch, long); len(batch) > 0 {
		e.Fatalf("visible messages %s: got %d, the first %q (delivery %d); want none", when, len(batch), short(batch[0].Text), batch[0].DequeueCount)
	}
}

func (e *env) peek(n int) []queue.Message {
	e.Helper()
	batch, err := e.q.Peek(e.ctx, n)
	e.ok(err)
	return batch
}

// until polls a condition and fails the test after two minutes: a real machine may be slow.
func (e *env) until(what string, holds func() bool) {
	e.Helper()
	if !suitetest.Poll(2*time.Minute, 100*time.Millisecond, holds) {
		e.Fatalf("timed out waiting until %s", what)
	}
}

// exactly lets simulated time pass and returns true. Without a bubble it returns false at once.
func (e *env) exactly(d time.Duration) bool {
	if e.h.Bubble {
		time.Sleep(d)
	}
	return e.h.Bubble
}

// after lets at least d pass by the server's clock.
func (e *env) after(d time.Duration) {
	e.Helper()
	if e.exactly(d) {
		return
	}
	if e.clock == nil {
		e.clock = e.q.Sibling("-clock")
		e.ok(e.clock.Create(e.ctx, nil))
		e.Cleanup(func() { _ = e.clock.(queue.Manager).Drop(context.Background()) })
	}
	tick, err := e.clock.Enqueue(e.ctx, "tick", &queue.EnqueueOptions{Delay: d})
	e.ok(err)
	e.until("the server's clock has gone on", func() bool {
		seen, err := e.clock.Peek(e.ctx, queue.MaxBatch)
		e.ok(err)
		return slices.ContainsFunc(seen, func(m queue.Message) bool { return m.ID == tick.ID })
	})
	e.ok(e.clock.(queue.Manager).Clear(e.ctx))
}

// texts returns the texts of messages, sorted because order is not promised.
func texts(batch []queue.Message) []string {
	var all []string
	for _, m := range batch {
		all = append(all, m.Text)
	}
	slices.Sort(all)
	return all
}

func short(text string) string {
	if len(text) > 40 {
		return text[:40] + "…"
	}
	return text
}

var traceTests = []test{{"WorkedTrace", func(e *env) {
	e.create()
	e.enqueue("m1", nil) // P1
	e.enqueue("m2", nil) // P2

	const visibility = 30 * time.Second
	held := long // for C1's message: on a real backend it must not become visible too early
	if e.h.Bubble {
		held = visibility
	}
	crashed := e.take(1, held)[0] // C1
	other := e.take(1, long)[0]   // C2
	if got := texts([]queue.Message{crashed, other}); got[0] != "m1" || got[1] != "m2" {
		e.Fatalf("messages of the consumers: got %q, want m1 and m2", got)
	}
	e.ok(e.q.Delete(e.ctx, other.Lease))
	e.none("while C1 holds its message")

	// C1 crashes. Its message becomes visible when the visibility timeout ends, not before.
	if e.exactly(visibility - time.Millisecond) {
		e.none("just before the visibility ends")
		e.exactly(time.Millisecond)
	} else {
		// To save 30 real seconds, C1 shortens its lease before it crashes.
		short, err := e.q.Update(e.ctx, crashed.Lease, crashed.Text, time.Second)
		e.ok(err)
		crashed.Lease = short
	}
	again := e.one(long) // C2
	if again.ID != crashed.ID || again.Text != crashed.Text || again.DequeueCount != 2 {
		e.Errorf("C2 got %q as delivery %d, want C1's %q as delivery 2", again.Text, again.DequeueCount, crashed.Text)
	}
	e.is(e.q.Delete(e.ctx, crashed.Lease), queue.ErrLeaseLost, "C1's delete after the redelivery")
	e.ok(e.q.Delete(e.ctx, again.Lease))
	e.none("after both are deleted")
	p, err := e.q.Properties(e.ctx)
	e.ok(err)
	if p.Depth != 0 {
		e.Errorf("depth at the end: got %d, want 0", p.Depth)
	}
}}}

package serverwakeup_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/wakeup"
	"github.com/millrace/millrace/wakeup/serverwakeup"
)

// bundle is a server in process with the queue "orders", and a source of its wake-ups.
type bundle struct {
	*testing.T
	engine *localqueue.Engine
	queue  queue.Manager
	server *emulator.Server
	via    *network
	source *serverwakeup.Source
	log    *syncBuffer
}

// inBubble runs a test in a bubble.
func inBubble(t *testing.T, f func(b *bundle)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(setup(t)) })
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{T: t, engine: must(localqueue.New(&localqueue.Options{DeletingFor: -1})), log: new(syncBuffer)}
	b.server = must(emulator.New(b.engine, nil))
	b.via = &network{to: b.server}
	b.queue = b.engine.Queue(queue.Name{Account: emulator.DevelopmentAccount, Queue: "orders"})
	if err := b.queue.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	b.source = b.open(b.server.ConnectionString())
	return b
}

// open opens another source, which is another process for the server.
func (b *bundle) open(location string) *serverwakeup.Source {
	b.Helper()
	logger := slog.New(slog.NewTextHandler(b.log, nil))
	s, err := serverwakeup.Open(location, &serverwakeup.Options{Transport: &http.Client{Transport: b.via}, Logger: logger})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s
}

func (b *bundle) subscribe(s wakeup.Source) *ears {
	b.Helper()
	e := &ears{T: b.T}
	var err error
	e.subscription, err = s.Subscribe(b.queue.Name(), func(queue.Name, int64, time.Time) { e.add(&e.events, 1) }, func(listening bool) {
		if listening {
			e.add(&e.began, 1)
		} else {
			e.add(&e.ended, 1)
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	return e
}

func (b *bundle) put() {
	b.Helper()
	if _, err := b.queue.Enqueue(b.Context(), "x", nil); err != nil {
		b.Fatal(err)
	}
}

func (b *bundle) take() {
	b.Helper()
	if _, err := b.queue.Dequeue(b.Context(), 32, time.Hour); err != nil {
		b.Fatal(err)
	}
}

// requests returns how often streams were asked for, and readiness was said.
func (b *bundle) requests() (open, ready int64) {
	c := b.server.Counts()
	return c.Operations[emulator.OpenWakeups], c.Operations[emulator.ReadyWakeups]
}

// ears are a subscriber that counts what it hears.
type ears struct {
	*testing.T
	subscription wakeup.Subscription

	mu                   sync.Mutex
	events, began, ended int // guarded by mu
}

func (e *ears) add(n *int, d int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	*n += d
}

// listened returns how often listening(true) was called.
func (e *ears) listened() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.began
}

// want waits until nothing happens in the bubble, and compares.
func (e *ears) want(events, began, ended int) {
	e.Helper()
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.events != events || e.began != began || e.ended != ended {
		e.Fatalf("got %d events, %d × Listening(true), %d × Listening(false); want %d, %d, %d", e.events, e.began, e.ended, events, began, ended)
	}
}

// network is a transport that a test may change.
type network struct {
	mu   sync.Mutex
	to   http.RoundTripper                           // guarded by mu
	seen func(*http.Request)                         // guarded by mu; called for each request
	make func(*http.Request) (*http.Response, error) // guarded by mu; makes the response, if set
	cut  []context.CancelCauseFunc                   // guarded by mu; end the requests so far
}

func (n *network) RoundTrip(r *http.Request) (*http.Response, error) {
	n.mu.Lock()
	to, made, seen := n.to, n.make, n.seen
	ctx, cancel := context.WithCancelCause(r.Context())
	n.cut = append(n.cut, cancel)
	n.mu.Unlock()
	if seen != nil {
		seen(r)
	}
	if made != nil {
		return made(r.WithContext(ctx))
	}
	return to.RoundTrip(r.WithContext(ctx))
}

// set changes how responses are made. Nil means by the server.
func (n *network) set(f func(*http.Request) (*http.Response, error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.make = f
}

// breaks breaks all connections with an error.
func (n *network) breaks(cause error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, cancel := range n.cut {
		cancel(cause)
	}
	n.cut = nil
}

type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// lines returns the number of lines that contain the text.
func (b *syncBuffer) lines(text string) int {
	n := 0
	for line := range strings.Lines(b.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

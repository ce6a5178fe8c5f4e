package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/internal/azuritetest"
)

// emulators compares local servers of the Queue service's protocol: the program millrace, in memory and
// with its data on disk, and Azurite.
// Every server runs in a separate process and gets the same work from the same azqueue client.
type emulators struct {
	turns
	kinds       []emulatorKind
	works       []queueWork
	connections []int
	window      time.Duration
	millrace    string // the program
}

func (e *emulators) flags(f *flag.FlagSet) {
	e.turns.flags(f)
	several(f, &e.kinds, emulatorKinds, named(emulatorKinds), "contenders", "which servers; the others are compared with the first")
	several(f, &e.works, queueWorks, named(queueWorks), "work", "enqueue, or dequeue and delete with this many messages waiting")
	several(f, &e.connections, []int{16, 64}, between(1, 1024, strconv.Atoi), "connections", "numbers of connections, each with one request at a time")
	one(f, &e.window, 2*time.Second, lasting, "for", "minimum time of a measurement, not counting refills")
}

func (e *emulators) check() error { return nil }

type emulatorKind string

func (k emulatorKind) String() string { return string(k) }

var emulatorKinds = []emulatorKind{"azurite", "memory", "disk"}

// emulatorTurn is a server with a kind of work and a number of connections.
type emulatorTurn struct {
	kind        emulatorKind
	work        queueWork
	connections int
	first       *emulatorTurn // the first server with this work
	samples     samples
}

func (t *emulatorTurn) String() string {
	return fmt.Sprintf("%v, %d connections, %v", t.work, t.connections, t.kind)
}

func (e *emulators) run(ctx context.Context, h *harness) (*report, error) {
	bin, err := h.build(ctx, "github.com/millrace/millrace/cmd/millrace")
	if err != nil {
		return nil, err
	}
	e.millrace = filepath.Join(bin, "millrace")
	var all []*emulatorTurn
	for _, w := range e.works {
		for _, n := range e.connections {
			first := len(all)
			for _, k := range e.kinds {
				all = append(all, &emulatorTurn{kind: k, work: w, connections: n})
				all[len(all)-1].first = all[first]
			}
		}
	}
	err = takeTurns(ctx, h, e.rounds, all, func(t *emulatorTurn, _ int) (err error) {
		s, err := e.start(ctx, h, t.kind) // a new one for each measurement
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		taken, err := t.work.measure(ctx, s, t.connections, e.window)
		t.samples = append(t.samples, taken)
		return err
	})
	return &report{head: h.machine + ".\n\n", table: emulatorsTable(all)}, err
}

// emulatorsTable returns the results as Markdown.
func emulatorsTable(all []*emulatorTurn) string {
	var b strings.Builder
	b.WriteString("| work | connections | server | messages/s | × first | server's processor a message |\n|---|---|---|---|---|---|\n")
	for _, t := range all {
		processor := "–"
		if used := t.samples.median(func(s sample) float64 { return s.perMessage(s.processor.Seconds()) * 1e6 }); used > 0 {
			processor = fmt.Sprintf("%.1f µs", used)
		}
		fmt.Fprintf(&b, "| %v | %d | %v | %.0f | %.1f | %s |\n", t.work, t.connections, t.kind,
			t.samples.median(sample.perSecond), t.samples.times(t.first.samples, sample.perSecond), processor)
	}
	return b.String()
}

// emulatorServer is a server in a separate process.
type emulatorServer struct {
	location  string                        // a connection string
	processor func() (time.Duration, error) // used so far; 0 if unknown
	stop      func() error
}

func (e *emulators) start(ctx context.Context, h *harness, kind emulatorKind) (emulatorServer, error) {
	if kind == "azurite" {
		location, stop, err := azuritetest.Start()
		return emulatorServer{location, func() (time.Duration, error) { return 0, nil }, func() error { stop(); return nil }}, err
	}
	args := []string{"serve", "-addr", "127.0.0.1:0"}
	if kind == "disk" { // TMPDIR selects another disk
		dir, err := h.folder("queues")
		if err != nil {
			return emulatorServer{}, err
		}
		args = append(args, "-data", dir)
	}
	p, err := startProgram(ctx, "millrace serve", e.millrace, args...)
	if err != nil {
		return emulatorServer{}, err
	}
	location, err := p.until(connectionString, 1)
	if err != nil {
		return emulatorServer{}, errors.Join(err, p.stop())
	}
	return emulatorServer{location, p.processorTime, p.stop}, nil
}

// textSize is the size of a message in bytes, of characters that XML does not escape.
const textSize = 1024

// portion is how many messages are drained between two refills: few compared with the depth, so that
// the depth stays nearly constant, or all of them if the depth is small.
const portion = 500

type queueWork struct {
	name  string
	depth int64 // messages in the queue before each portion
	drain bool
}

func (w queueWork) String() string { return w.name }

var queueWorks = []queueWork{{name: "enqueue"}, {"drain500", 500, true}, {"drain5000", 5000, true}}

// measure does the work in portions until they have taken at least the window. Refills do not count.
func (w queueWork) measure(ctx context.Context, s emulatorServer, connections int, window time.Duration) (total sample, err error) {
	c, err := openQueueClient(ctx, s.location, connections)
	if err != nil {
		return total, err
	}
	defer c.http.CloseIdleConnections()
	waiting := int64(0)
	for total.wall < window {
		if err := c.put(ctx, w.depth-waiting); err != nil {
			return total, err
		}
		before, err := s.processor()
		if err != nil {
			return total, err
		}
		begin, done := time.Now(), int64(portion)
		if w.drain {
			done, err = c.drain(ctx, portion)
		} else {
			err = c.put(ctx, portion)
		}
		total.wall += time.Since(begin)
		if err != nil {
			return total, err
		}
		after, err := s.processor()
		if err != nil {
			return total, err
		}
		total.messages += done
		total.processor += after - before
		if w.drain {
			waiting = max(w.depth-done, 0)
		}
	}
	return total, nil
}

// queueClient is the azqueue client of one measurement: one queue and a number of connections.
type queueClient struct {
	queue       *azqueue.QueueClient
	http        *http.Client
	connections int
}

func openQueueClient(ctx context.Context, location string, connections int) (*queueClient, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.MaxConnsPerHost = 0, connections, connections
	transport.Proxy = nil
	c := &queueClient{http: &http.Client{Transport: transport}, connections: connections}
	var err error
	c.queue, err = azqueue.NewQueueClientFromConnectionString(location, fmt.Sprintf("bench-%d", time.Now().UnixNano()), &azqueue.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: c.http, Retry: policy.RetryOptions{MaxRetries: -1}, Telemetry: policy.TelemetryOptions{Disabled: true}},
	})
	if err != nil {
		return nil, err
	}
	_, err = c.queue.Create(ctx, nil)
	return c, err
}

// each calls one repeatedly on every connection, until it returns false or an error.
func (c *queueClient) each(ctx context.Context, one func(context.Context) (more bool, err error)) error {
	g, ctx := errgroup.WithContext(ctx)
	for range c.connections {
		g.Go(func() error {
			for {
				if more, err := one(ctx); err != nil || !more {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// put enqueues this number of messages.
func (c *queueClient) put(ctx context.Context, messages int64) error {
	var begun atomic.Int64
	text := strings.Repeat("x", textSize)
	return c.each(ctx, func(ctx context.Context) (bool, error) {
		if begun.Add(1) > messages {
			return false, nil
		}
		_, err := c.queue.EnqueueMessage(ctx, text, nil)
		return true, err
	})
}

// drain dequeues and deletes this number of messages, or a few more with the last batch. It returns how
// many.
func (c *queueClient) drain(ctx context.Context, messages int64) (int64, error) {
	var done atomic.Int64
	batch, visible := int32(32), int32(visibility)
	err := c.each(ctx, func(ctx context.Context) (bool, error) {
		if done.Load() >= messages {
			return false, nil
		}
		got, err := c.queue.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{NumberOfMessages: &batch, VisibilityTimeout: &visible})
		if err != nil {
			return false, err
		}
		done.Add(int64(len(got.Messages)))
		for _, m := range got.Messages {
			if _, err := c.queue.DeleteMessage(ctx, *m.MessageID, *m.PopReceipt, nil); err != nil {
				return false, err
			}
		}
		return len(got.Messages) > 0, nil
	})
	return done.Load(), err
}

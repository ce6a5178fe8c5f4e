package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"golang.org/x/sync/errgroup"
)

// textSize is the size of a message in bytes, of characters that XML does not escape.
const textSize = 1024

// portion is how many messages are drained between two refills: few compared with the depth, so that
// the depth stays nearly constant, or all of them if the depth is small.
const portion = 500

var (
	text       = strings.Repeat("x", textSize)
	batch      = int32(32)
	visibility = int32(60)
)

// client is the azqueue client of one measurement: one queue and a number of connections.
type client struct {
	queue       *azqueue.QueueClient
	http        *http.Client
	connections int
}

func open(ctx context.Context, location string, connections int) (*client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost, transport.MaxConnsPerHost = 0, connections, connections
	transport.Proxy = nil
	c := &client{http: &http.Client{Transport: transport}, connections: connections}
	name := fmt.Sprintf("bench-%d", time.Now().UnixNano())
	var err error
	c.queue, err = azqueue.NewQueueClientFromConnectionString(location, name, &azqueue.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: c.http, Retry: policy.RetryOptions{MaxRetries: -1}, Telemetry: policy.TelemetryOptions{Disabled: true}},
	})
	if err != nil {
		return nil, err
	}
	_, err = c.queue.Create(ctx, nil)
	return c, err
}

// close deletes the queue. Otherwise a server that keeps all messages together would be slower in the
// next measurement.
func (c *client) close(ctx context.Context) error {
	_, err := c.queue.Delete(ctx, nil)
	c.http.CloseIdleConnections()
	return err
}

// each calls one repeatedly on every connection, until it returns false or an error.
func (c *client) each(ctx context.Context, one func(context.Context) (more bool, err error)) error {
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
func (c *client) put(ctx context.Context, messages int64) error {
	var begun atomic.Int64
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
func (c *client) drain(ctx context.Context, messages int64) (int64, error) {
	var done atomic.Int64
	err := c.each(ctx, func(ctx context.Context) (bool, error) {
		if done.Load() >= messages {
			return false, nil
		}
		got, err := c.queue.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{NumberOfMessages: &batch, VisibilityTimeout: &visibility})
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

// work is what is measured.
type work struct {
	name  string
	depth int64 // messages in the queue before each portion
	drain bool
}

func (w work) String() string { return w.name }

var works = []work{
	{name: "enqueue"},
	{name: "drain500", depth: 500, drain: true},
	{name: "drain5000", depth: 5000, drain: true},
}

// sample is one measurement.
type sample struct {
	messages  int64
	wall      time.Duration
	processor time.Duration // of the server; zero if unknown
}

func (s sample) perSecond() float64 { return float64(s.messages) / s.wall.Seconds() }

// measure does the work in portions until they have taken at least the window. Refills do not count.
func (w work) measure(ctx context.Context, s *server, connections int, window time.Duration) (total sample, err error) {
	c, err := open(ctx, s.location, connections)
	if err != nil {
		return total, err
	}
	defer func() { err = errors.Join(err, c.close(ctx)) }()
	waiting := int64(0)
	for total.wall < window && err == nil {
		if err := c.put(ctx, w.depth-waiting); err != nil {
			return total, err
		}
		waiting = w.depth
		one, err := w.timed(ctx, s, c)
		if err != nil {
			return total, err
		}
		if w.drain {
			waiting = max(waiting-one.messages, 0)
		}
		total.messages += one.messages
		total.wall += one.wall
		total.processor += one.processor
	}
	return total, nil
}

// timed measures one portion.
func (w work) timed(ctx context.Context, s *server, c *client) (one sample, err error) {
	before, err := s.used()
	if err != nil {
		return one, err
	}
	begin := time.Now()
	if w.drain {
		one.messages, err = c.drain(ctx, portion)
	} else {
		one.messages, err = portion, c.put(ctx, portion)
	}
	one.wall = time.Since(begin)
	if err != nil {
		return one, err
	}
	after, err := s.used()
	one.processor = after - before
	return one, err
}

func (s *server) used() (time.Duration, error) {
	if s.processor == nil {
		return 0, nil
	}
	return s.processor()
}

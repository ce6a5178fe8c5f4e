package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/azurequeue/http1"
)

// contender is a way to consume a queue.
type contender struct {
	name  string
	start func(context.Context, consumption) (*running, error)
}

func (c contender) String() string { return c.name }

// By default the first three are measured. The loops separate the cost of the listener from that of its queue.
var contenders = []contender{
	{"ideal", startIdeal},
	{"millrace", listenerOver(false)},
	{"millrace-http1", listenerOver(true)},
	{"loop", loopOver(false)},
	{"loop-http1", loopOver(true)},
}

// consumption is the work of a contender.
type consumption struct {
	location    string // a connection string
	queue       string
	concurrency int           // handlers at once
	handler     time.Duration // how long each waits
}

// connections returns the size of every contender's connection pool. Deletes may be in flight together
// with those of the next handlers and the dequeues.
func (c consumption) connections() int { return 2*c.concurrency + 64 }

// loops returns how many goroutines fetch.
func (c consumption) loops() int { return (c.concurrency + 31) / 32 }

// handle is the handler: it waits, as for a database.
func (c consumption) handle() {
	if c.handler > 0 {
		time.Sleep(c.handler)
	}
}

type running struct {
	done func() int64 // messages handled and deleted so far
	stop func() error // stops it, waits and returns its error
}

// open opens the queue, over http1 or net/http, and returns how to close it.
func (c consumption) open(fast bool) (*azurequeue.Queue, func() error, error) {
	o := &azurequeue.Options{Connections: c.connections(), TryTimeout: time.Minute}
	var closing closers
	if fast {
		transport := http1.New(&http1.Options{Connections: c.connections()})
		closing.add(transport.Close)
		o.Transport = transport
	}
	q, err := azurequeue.Open(c.location, c.queue, o)
	if err != nil {
		return nil, nil, errors.Join(err, closing.close())
	}
	closing.add(q.Close)
	return q, closing.close, nil
}

// listenerOver starts a listener with the defaults for everything that a cell does not set.
func listenerOver(fast bool) func(context.Context, consumption) (*running, error) {
	return func(ctx context.Context, c consumption) (*running, error) {
		q, closing, err := c.open(fast)
		if err != nil {
			return nil, err
		}
		w := &listening{failed: make(chan error, 1), closing: closers{closing}}
		l := listener.New(q, func(context.Context, *listener.Message[[]byte]) error { c.handle(); return nil }, &listener.Options[[]byte]{
			Codec: codec.Bytes(), Format: codec.Plain, Concurrency: c.concurrency, OnError: w.fail,
		})
		err = w.start(ctx, l.Run, func() bool { return true })
		return &running{func() int64 { return l.State().Succeeded }, w.stop}, err
	}
}

// loopOver starts the ideal loop over azurequeue, without a listener.
func loopOver(fast bool) func(context.Context, consumption) (*running, error) {
	return func(_ context.Context, c consumption) (*running, error) {
		q, closing, err := c.open(fast)
		if err != nil {
			return nil, err
		}
		return c.startSemaphore(func(ctx context.Context, n int) ([]taken, error) {
			batch, err := q.Dequeue(ctx, n, visibility*time.Second)
			messages := make([]taken, len(batch))
			for i, m := range batch {
				messages[i] = func(ctx context.Context) error { return q.Delete(ctx, m.Lease) }
			}
			return messages, err
		}, closing), nil
	}
}

const visibility = 60 // seconds; longer than any cell takes

// taken deletes a dequeued message.
type taken func(context.Context) error

// fetch dequeues up to n messages.
type fetch func(ctx context.Context, n int) ([]taken, error)

// sdkFetch dequeues with azqueue and a large enough connection pool, as a careful user configures it.
func sdkFetch(c consumption) (fetch, func() error, error) {
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		MaxIdleConnsPerHost: c.connections(),
		IdleConnTimeout:     90 * time.Second,
	}
	o := &azqueue.ClientOptions{}
	o.Transport = &http.Client{Transport: transport}
	q, err := azqueue.NewQueueClientFromConnectionString(c.location, c.queue, o)
	return func(ctx context.Context, n int) ([]taken, error) {
		batch, err := q.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{
			NumberOfMessages: to.Ptr(int32(n)), VisibilityTimeout: to.Ptr(int32(visibility)),
		})
		messages := make([]taken, len(batch.Messages))
		for i, m := range batch.Messages {
			messages[i] = func(ctx context.Context) error {
				_, err := q.DeleteMessage(ctx, *m.MessageID, *m.PopReceipt, nil)
				return err
			}
		}
		return messages, err
	}, func() error { transport.CloseIdleConnections(); return nil }, err
}

// startIdeal starts the best loop that one would write by hand, over azqueue.
func startIdeal(_ context.Context, c consumption) (*running, error) {
	get, closing, err := sdkFetch(c)
	if err != nil {
		return nil, err
	}
	return c.startSemaphore(get, closing), nil
}

// startSemaphore starts a loop with a semaphore of slots, from which each fetcher takes one and up to 31 more
// that are free. It dequeues that many messages, and a goroutine for each handles it, deletes it and frees its slot.
func (c consumption) startSemaphore(get fetch, closing func() error) *running {
	w := newWorkers()
	slots := make(chan struct{}, c.concurrency)
	for range c.loops() {
		w.fetchers.Go(func() {
			for {
				select {
				case slots <- struct{}{}:
				case <-w.ctx.Done():
					return
				}
				n := 1
			more:
				for n < 32 {
					select {
					case slots <- struct{}{}:
						n++
					default:
						break more
					}
				}
				batch, err := get(context.Background(), n)
				if err != nil {
					w.failed(err)
					return
				}
				for range n - len(batch) {
					<-slots
				}
				for _, m := range batch {
					w.handlers.Go(func() {
						c.handle()
						w.deleted(m(context.Background()))
						<-slots
					})
				}
			}
		})
	}
	return w.running(closing)
}

// workers are the goroutines of a hand-written loop.
type workers struct {
	ctx      context.Context // ends when fetching must stop
	cancel   context.CancelFunc
	fetchers sync.WaitGroup
	handlers sync.WaitGroup
	done     atomic.Int64
	errs     chan error // the first one
}

func newWorkers() *workers {
	w := &workers{errs: make(chan error, 1)}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

func (w *workers) failed(err error) { waiting.Signal(w.errs, err) }

func (w *workers) deleted(err error) {
	if err != nil {
		w.failed(err)
		return
	}
	w.done.Add(1)
}

func (w *workers) running(closing func() error) *running {
	return &running{w.done.Load, func() error {
		w.cancel()
		w.fetchers.Wait()
		w.handlers.Wait()
		select {
		case err := <-w.errs:
			return errors.Join(fmt.Errorf("consume the queue: %w", err), closing())
		default:
			return closing()
		}
	}}
}

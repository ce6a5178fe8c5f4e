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
)

// sdkQueue returns a queue of azqueue with a large enough connection pool, as a careful user
// configures it.
func sdkQueue(j job) (*azqueue.QueueClient, *http.Transport, error) {
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		MaxIdleConnsPerHost: j.connections(),
		IdleConnTimeout:     90 * time.Second,
	}
	o := &azqueue.ClientOptions{}
	o.Transport = &http.Client{Transport: transport}
	q, err := azqueue.NewQueueClientFromConnectionString(j.location, j.queue, o)
	return q, transport, err
}

const visibility = 60 // seconds; longer than any cell takes

// taken deletes a dequeued message.
type taken func(context.Context) error

// fetch dequeues up to n messages.
type fetch func(ctx context.Context, n int) ([]taken, error)

func sdkFetch(q *azqueue.QueueClient) fetch {
	return func(ctx context.Context, n int) ([]taken, error) {
		batch, err := q.DequeueMessages(ctx, &azqueue.DequeueMessagesOptions{
			NumberOfMessages: to.Ptr(int32(n)), VisibilityTimeout: to.Ptr(int32(visibility)),
		})
		if err != nil {
			return nil, err
		}
		messages := make([]taken, len(batch.Messages))
		for i, m := range batch.Messages {
			messages[i] = func(ctx context.Context) error {
				_, err := q.DeleteMessage(ctx, *m.MessageID, *m.PopReceipt, nil)
				return err
			}
		}
		return messages, nil
	}
}

// startIdeal starts the best loop that one would write by hand: a semaphore of slots, from which each
// fetcher takes one and up to 31 more that are free. It dequeues that many messages, and a goroutine
// for each handles it, deletes it and frees its slot.
func startIdeal(_ context.Context, j job) (*running, error) {
	q, transport, err := sdkQueue(j)
	if err != nil {
		return nil, err
	}
	return startSemaphore(j, sdkFetch(q), func() error { transport.CloseIdleConnections(); return nil }), nil
}

func startSemaphore(j job, get fetch, closing func() error) *running {
	w := newWorkers()
	slots := make(chan struct{}, j.concurrency)
	for range j.loops() {
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
						j.handle()
						w.deleted(m(context.Background()))
						<-slots
					})
				}
			}
		})
	}
	return w.running(closing)
}

// startSample starts the loops of the source's sample: each dequeues a batch, handles it in parallel,
// waits, deletes each message and repeats. Its deletes are in parallel too, in its favour.
func startSample(_ context.Context, j job) (*running, error) {
	q, transport, err := sdkQueue(j)
	if err != nil {
		return nil, err
	}
	get := sdkFetch(q)
	w := newWorkers()
	for range j.loops() {
		w.fetchers.Go(func() {
			for w.ctx.Err() == nil {
				batch, err := get(context.Background(), 32)
				if err != nil {
					w.failed(err)
					return
				}
				var turn sync.WaitGroup
				for range batch {
					turn.Go(j.handle)
				}
				turn.Wait()
				for _, m := range batch {
					turn.Go(func() { w.deleted(m(context.Background())) })
				}
				turn.Wait()
			}
		})
	}
	return w.running(func() error { transport.CloseIdleConnections(); return nil }), nil
}

// workers are the goroutines of a hand-written loop.
type workers struct {
	ctx      context.Context // ends when fetching must stop
	cancel   context.CancelFunc
	fetchers sync.WaitGroup
	handlers sync.WaitGroup
	done     atomic.Int64

	mu  sync.Mutex
	err error // the first; guarded by mu
}

func newWorkers() *workers {
	w := &workers{}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

func (w *workers) deleted(err error) {
	if err != nil {
		w.failed(err)
		return
	}
	w.done.Add(1)
}

func (w *workers) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}

func (w *workers) running(closing func() error) *running {
	return &running{
		done: w.done.Load,
		stop: func() error {
			w.cancel()
			w.fetchers.Wait()
			w.handlers.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			if err := errors.Join(w.err, closing()); err != nil {
				return fmt.Errorf("consume the queue: %w", err)
			}
			return nil
		},
	}
}

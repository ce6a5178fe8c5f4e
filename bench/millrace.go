package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
)

// open opens a queue of azurequeue, with net/http if there is no transport.
func open(j job, transport policy.Transporter) (*azurequeue.Queue, error) {
	return azurequeue.Open(j.location, j.queue, &azurequeue.Options{Transport: transport, Connections: j.connections(), TryTimeout: time.Minute})
}

func startListener(ctx context.Context, j job) (*running, error) {
	q, err := open(j, nil)
	if err != nil {
		return nil, err
	}
	return listen(ctx, j, q, nil, q.Close), nil
}

// listen starts a listener with the defaults for everything that a cell does not set.
func listen(ctx context.Context, j job, q queue.Queue, interceptors []listener.Interceptor, closing func() error) *running {
	ctx, cancel := context.WithCancel(ctx)
	var failure error // of Run; written before ended is closed
	failures := make(chan error, 1)
	l := listener.New(q, func(context.Context, *listener.Message[[]byte]) error { j.handle(); return nil }, &listener.Options[[]byte]{
		Codec: codec.Bytes(), Format: codec.Plain, Concurrency: j.concurrency, Interceptors: interceptors,
		OnError: func(err error) { waiting.Signal(failures, err) },
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		failure = l.Run(ctx)
	}()
	return &running{
		done:     func() int64 { return l.State().Succeeded },
		heldBack: func() int64 { return l.State().Limited },
		stop: func() error {
			cancel()
			<-ended
			select {
			case err := <-failures:
				failure = errors.Join(failure, err)
			default:
			}
			if err := errors.Join(failure, closing()); err != nil {
				return fmt.Errorf("run the listener: %w", err)
			}
			return nil
		},
	}
}

// startLoop starts the ideal loop over azurequeue, to measure the decoding policy alone.
func startLoop(_ context.Context, j job) (*running, error) {
	q, err := open(j, nil)
	if err != nil {
		return nil, err
	}
	return startSemaphore(j, queueFetch(q), q.Close), nil
}

func queueFetch(q *azurequeue.Queue) fetch {
	return func(ctx context.Context, n int) ([]taken, error) {
		batch, err := q.Dequeue(ctx, n, visibility*time.Second)
		if err != nil {
			return nil, err
		}
		messages := make([]taken, len(batch))
		for i, m := range batch {
			messages[i] = func(ctx context.Context) error { return q.Delete(ctx, m.Lease) }
		}
		return messages, nil
	}
}

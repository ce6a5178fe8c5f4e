package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/azurequeue/http1"
	"github.com/millrace/millrace/queue/sharded"
	"github.com/millrace/millrace/shards"
)

// job is what is sent.
type job struct{ Number int }

// work sends jobs to shards and handles them, as fast as they go.
type work struct {
	listener *shards.Listener[job]
	cancel   context.CancelFunc
	running  sync.WaitGroup
	closing  []io.Closer

	mu      sync.Mutex
	failure error // guarded by mu
}

// startWork creates the queues and starts to send and listen.
func startWork(ctx context.Context, location string, k, window int) (_ *work, err error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &work{cancel: cancel}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
		}
	}()
	all, err := w.open(ctx, location, k, window)
	if err != nil {
		return nil, err
	}
	q, err := sharded.New(all, nil)
	if err != nil {
		return nil, err
	}
	// A place for each job that is under way: sent, and not yet handled. A handler makes room for the
	// next job while its message is being deleted.
	room := make(chan struct{}, window*k)
	w.listener = shards.New(all, func(context.Context, *listener.Message[job]) error {
		select {
		case <-room:
		default: // it came twice
		}
		return nil
	}, &shards.Options[job]{Slots: 64 * k, Listener: &listener.Options[job]{Logger: slog.New(slog.DiscardHandler)}})
	w.running.Go(func() { w.fail(w.listener.Run(ctx)) })
	p := producer.New[job](q, nil)
	for i := range window * k {
		w.running.Go(func() { w.fail(send(ctx, p, room, i)) })
	}
	return w, nil
}

// open opens and creates the queues, under new names, so that no limit is used yet. They share a transport that
// costs little, because sender, listener and server share the processors.
func (w *work) open(ctx context.Context, location string, k, window int) (all []queue.Queue, err error) {
	name := fmt.Sprintf("shards-%d", time.Now().UnixNano())
	transport := http1.New(&http1.Options{Connections: k * (64 + window)})
	w.closing = append(w.closing, transport)
	for i := range k {
		q, err := azurequeue.Open(location, fmt.Sprintf("%s-%d", name, i), &azurequeue.Options{Transport: transport})
		if err != nil {
			return nil, err
		}
		w.closing = append(w.closing, q)
		if err := q.Create(ctx, nil); err != nil {
			return nil, err
		}
		all = append(all, q)
	}
	return all, nil
}

// send sends one job after the other while there is room, until ctx ends.
func send(ctx context.Context, p *producer.Producer[job], room chan<- struct{}, number int) error {
	for {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		if _, err := p.Send(ctx, job{number}, nil); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

func (w *work) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failure = errors.Join(w.failure, err)
}

// done returns how many jobs were handled and deleted.
func (w *work) done() int64 { return w.listener.State().Total.Succeeded }

// stop stops the work without waiting for jobs that are left.
func (w *work) stop() error {
	w.cancel()
	if w.listener != nil {
		w.listener.Halt()
	}
	w.running.Wait()
	for _, c := range slices.Backward(w.closing) {
		w.fail(c.Close())
	}
	return w.failure
}

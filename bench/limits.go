package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/limited"
	"github.com/millrace/millrace/queue/tokens"
)

// The contenders of this file are the listener under a limit of twice what the first contender does, so that what they
// lose is what the limit costs.

// loose is how many times the load a limit allows.
const loose = 2

var errNoLoad = errors.New("the limit is twice the load of the first contender: name another one first, such as millrace")

// startLimited starts the listener under a limit of this process.
func startLimited(ctx context.Context, j job) (*running, error) {
	if j.load == 0 {
		return nil, errNoLoad
	}
	// A message is got and deleted, and both count.
	limit, err := limited.New(&limited.Options{Messages: loose * 2 * j.load, Requests: loose * 2 * j.load})
	if err != nil {
		return nil, err
	}
	q, err := open(j, nil)
	if err != nil {
		return nil, err
	}
	return listen(ctx, j, limit.Wrap(q), nil, q.Close), nil
}

// startRate starts the listener under a rate of all processes.
func startRate(ctx context.Context, j job) (*running, error) {
	if j.load == 0 {
		return nil, errNoLoad
	}
	r := tokens.Rate{Jobs: int(loose * j.load * tokens.MinWindow.Seconds()), Window: tokens.MinWindow}
	q, source, err := openBoth(j)
	if err != nil {
		return nil, err
	}
	closing := func() error { return errors.Join(source.Drop(context.Background()), source.Close(), q.Close()) }
	err = r.Init(ctx, atOnce{source})
	limit, failed := r.Open(ctx, source)
	if err = errors.Join(err, failed); err != nil {
		return nil, errors.Join(err, closing())
	}
	return listen(ctx, j, limit.Wrap(q), nil, closing), nil
}

// startConcurrency starts the listener under a concurrency of all processes.
func startConcurrency(ctx context.Context, j job) (*running, error) {
	c := tokens.Concurrency{Jobs: loose * j.concurrency}
	q, source, err := openBoth(j)
	if err != nil {
		return nil, err
	}
	closing := func() error { return errors.Join(source.Drop(context.Background()), source.Close(), q.Close()) }
	err = c.Init(ctx, atOnce{source})
	limit, failed := c.Open(ctx, source)
	if err = errors.Join(err, failed); err != nil {
		return nil, errors.Join(err, closing())
	}
	ctx, stop := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	var kept error // written before keeping is done
	keeping.Go(func() { kept = limit.Run(ctx) })
	return listen(ctx, j, limit.Wrap(q), []listener.Interceptor{limit.Intercept}, func() error {
		stop()
		keeping.Wait()
		return errors.Join(kept, closing())
	}), nil
}

// openBoth opens the queue of the jobs, and one for tokens, with a pool of connections for each.
func openBoth(j job) (q, source *azurequeue.Queue, err error) {
	if q, err = open(j, nil); err != nil {
		return nil, nil, err
	}
	j.queue += "-tokens"
	if source, err = open(j, nil); err != nil {
		return nil, nil, errors.Join(err, q.Close())
	}
	return q, source, nil
}

// atOnce is a queue of tokens that can be taken at once: a measurement does not wait for what the set-up of
// a fleet needs.
type atOnce struct{ queue.Manager }

// Update makes a token visible at once.
func (q atOnce) Update(ctx context.Context, l queue.Lease, text string, _ time.Duration) (queue.Lease, error) {
	return q.Manager.Update(ctx, l, text, 0)
}

package main

import (
	"context"
	"errors"

	"github.com/millrace/millrace/queue/azurequeue/http1"
)

// startListenerHTTP1 starts the listener over the transport http1.
func startListenerHTTP1(ctx context.Context, j job) (*running, error) {
	transport := http1.New(&http1.Options{Connections: j.connections()})
	q, err := open(j, transport)
	if err != nil {
		return nil, errors.Join(err, transport.Close())
	}
	return listen(ctx, j, q, nil, transport.Close), nil
}

func startLoopHTTP1(_ context.Context, j job) (*running, error) {
	transport := http1.New(&http1.Options{Connections: j.connections()})
	q, err := open(j, transport)
	if err != nil {
		return nil, errors.Join(err, transport.Close())
	}
	return startSemaphore(j, queueFetch(q), transport.Close), nil
}

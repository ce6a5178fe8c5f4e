package main

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
)

// transport is a way in which a worker learns of a job.
type transport struct {
	name      string
	processes int  // of sender and worker
	wakes     bool // the worker is woken and does not poll

	// receive sets the options of the worker's listener. What it opens the worker closes.
	receive func(w *worker, o *listener.Options[job]) error

	// send sets the options of the sender's producer. What it opens the sender closes.
	send func(s *sender, o *producer.Options[job]) error
}

func (t transport) String() string { return t.name }

var transports = []transport{
	{
		name: "polling", processes: 2,
		receive: func(*worker, *listener.Options[job]) error { return nil },
		send:    func(*sender, *producer.Options[job]) error { return nil },
	},
}

func transportByName(name string) (transport, error) {
	for _, t := range transports {
		if t.name == name {
			return t, nil
		}
	}
	return transport{}, fmt.Errorf("unknown transport %q: choose from %v", name, transports)
}

// consume starts a worker.
func (t transport) consume(ctx context.Context, a assignment) (consumer, error) {
	if t.processes == 1 {
		return startWorker(ctx, a)
	}
	return startRemote(a)
}

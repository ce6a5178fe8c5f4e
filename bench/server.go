package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	nats "github.com/nats-io/nats-server/v2/server"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// serverOptions are the first value for a server: the emulator, with its messages in memory.
type serverOptions struct {
	Delays []time.Duration // an endpoint for each, with the same queues, whose requests take so much longer; by default one without
	Limit  int             // of each queue, messages a second; 0 for none
	NATS   bool            // run a NATS server too
}

type serverState struct {
	Locations         []string // connection strings of the endpoints
	NATS              string   // a URL
	Processor         time.Duration
	Requests, Limited int64
}

// serverOrder is a further value for a server. An empty one only asks for the state.
type serverOrder struct {
	Fill           string // create this queue, and keep messages in it
	Messages, Size int    // so many, of so many bytes
	Drop           string // stop that, and delete this queue
}

// server is the emulator in a process of its own.
type server struct {
	*child
	started serverState
}

func startServer(o serverOptions) (s *server, err error) {
	s = &server{}
	s.child, err = startChild(context.Background(), "server", o, &s.started)
	return s, err
}

// look returns what the server has done so far.
func (s *server) look() (state serverState, err error) {
	err = s.ask(serverOrder{}, &state)
	return state, err
}

func serve(first json.RawMessage) (any, answerer, error) {
	var o serverOptions
	if err := json.Unmarshal(first, &o); err != nil {
		return nil, nil, err
	}
	if o.Delays == nil {
		o.Delays = []time.Duration{0}
	}
	engine := localqueue.New(nil)
	var state serverState
	var counting *emulator.Server // benchmarks that count have one endpoint
	for _, delay := range o.Delays {
		counting = emulator.New(engine, &emulator.Options{Delay: delay, Limits: emulator.Limits{Messages: o.Limit}})
		e, err := counting.Start("")
		if err != nil {
			return nil, nil, err
		}
		state.Locations = append(state.Locations, e.ConnectionString())
	}
	if o.NATS {
		var err error
		if state.NATS, err = serveNATS(); err != nil {
			return nil, nil, err
		}
	}
	f := filler{engine: engine, stops: make(map[string]func())}
	return state, func(line json.RawMessage) (any, error) {
		var order serverOrder
		err := json.Unmarshal(line, &order)
		switch {
		case err != nil:
		case order.Fill != "":
			err = f.keepFull(order.Fill, order.Messages, order.Size)
		case order.Drop != "":
			err = f.drop(order.Drop)
		default:
			state.Requests, state.Limited = counting.Counts().Requests(), counting.Counts().Limited
			state.Processor, err = processorTime()
		}
		return state, err
	}, nil
}

// serveNATS starts a NATS server in this process and returns its address.
func serveNATS() (url string, err error) {
	s, err := nats.NewServer(&nats.Options{Host: "127.0.0.1", Port: nats.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		return "", err
	}
	go s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return "", errors.New("the NATS server does not start")
	}
	return s.ClientURL(), nil
}

// filler keeps queues full.
type filler struct {
	engine *localqueue.Engine
	stops  map[string]func() // by queue
}

func (f *filler) queue(name string) queue.Manager {
	return f.engine.Queue(queue.Name{Account: emulator.DevelopmentAccount, Queue: name})
}

func (f *filler) keepFull(name string, messages, size int) error {
	ctx, cancel := context.WithCancel(context.Background())
	q, text := f.queue(name), strings.Repeat("x", size)
	fill := func() error {
		p, err := q.Properties(ctx)
		for depth := p.Depth; err == nil && depth < int64(messages); depth++ {
			_, err = q.Enqueue(ctx, text, nil)
		}
		return err
	}
	if err := errors.Join(q.Create(ctx, nil), fill()); err != nil {
		cancel()
		return err
	}
	var work sync.WaitGroup
	work.Go(func() {
		for pause := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				pause.Stop()
				return
			case <-pause.C:
				_ = fill() // a failure shows as an empty queue
			}
		}
	})
	f.stops[name] = func() { cancel(); work.Wait() }
	return nil
}

func (f *filler) drop(name string) error {
	stop, ok := f.stops[name]
	if !ok {
		return fmt.Errorf("unknown queue %s", name)
	}
	stop()
	delete(f.stops, name)
	return f.queue(name).Drop(context.Background())
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/listener/shards"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/azurequeue/http1"
	"github.com/millrace/millrace/queue/sharded"
	"golang.org/x/sync/errgroup"
)

// sharding measures how many jobs a second several queues carry, from sending to deleting, if each is limited to so
// many messages a second. Sender and listener are this process.
type sharding struct {
	turns
	shards   []int // how many queues
	limit    int   // of each queue, messages a second; 0 for none
	underWay int   // jobs under way for each queue
	warmUp   time.Duration
	span     time.Duration
}

func (p *sharding) flags(f *flag.FlagSet) {
	p.turns.flags(f)
	several(f, &p.shards, []int{1, 2, 4, 8}, between(1, 64, strconv.Atoi), "shards", "how many queues; ratios are to the fewest")
	one(f, &p.limit, 2000, notNegative, "limit", "messages a second and queue: each put, got and deleted one counts; 0 for none")
	one(f, &p.underWay, 64, between(1, 1024, strconv.Atoi), "under-way", "jobs under way for each queue at most, sent and not yet deleted")
	one(f, &p.warmUp, 3*time.Second, orNothing, "warm-up", "before each measurement: it takes the second's worth that an idle queue saves")
	one(f, &p.span, 10*time.Second, lasting, "for", "how long each is measured")
}

func (p *sharding) check() error {
	p.shards = ascending(p.shards)
	return nil
}

type shardsTurn struct {
	shards  int
	samples samples
}

func (t *shardsTurn) String() string { return fmt.Sprintf("%d shards", t.shards) }

func (p *sharding) run(ctx context.Context, h *harness) (*report, error) {
	s, err := startServer(serverOptions{Limit: p.limit})
	if err != nil {
		return nil, err
	}
	var all []*shardsTurn
	for _, k := range p.shards {
		all = append(all, &shardsTurn{shards: k})
	}
	err = takeTurns(ctx, h, p.rounds, all, func(t *shardsTurn, _ int) error {
		taken, err := p.once(ctx, s, t.shards)
		t.samples = append(t.samples, taken)
		return err
	})
	if err = errors.Join(err, s.stop()); err != nil {
		return nil, err
	}
	return &report{head: h.machine + ".\n\n", table: p.table(all)}, nil
}

// once measures one number of shards, on new queues.
func (p *sharding) once(ctx context.Context, s *server, k int) (taken sample, err error) {
	w, err := startShards(ctx, s.started.Locations[0], k, p.underWay)
	if err != nil {
		return taken, err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	waiting.For(p.warmUp, ctx.Done())
	before, err := w.look(s)
	if err != nil {
		return taken, err
	}
	waiting.For(p.span, ctx.Done())
	// A busy machine may take longer for the first job.
	for begun := time.Now(); w.done() == before.messages && time.Since(begun) < time.Minute && ctx.Err() == nil; {
		waiting.For(10*time.Millisecond, ctx.Done())
	}
	after, err := w.look(s)
	if taken = after.minus(before); err == nil && taken.messages == 0 {
		err = fmt.Errorf("no job was handled in %v", taken.wall)
	}
	return taken, err
}

// shardsWork sends jobs to shards and handles them, as fast as they go.
type shardsWork struct {
	listener *shards.Listener[job]
	cancel   context.CancelFunc
	running  errgroup.Group
	closing  closers
}

// startShards creates the queues and starts to send and listen.
func startShards(ctx context.Context, location string, k, underWay int) (_ *shardsWork, err error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &shardsWork{cancel: cancel}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.stop())
		}
	}()
	all, err := w.open(ctx, location, k, underWay)
	if err != nil {
		return nil, err
	}
	q, err := sharded.New(all, nil)
	if err != nil {
		return nil, err
	}
	// A place for each job that is under way: sent, and not yet handled. A handler makes room for the
	// next job while its message is being deleted.
	room := make(chan struct{}, underWay*k)
	w.listener, err = shards.New(all, func(context.Context, *listener.Message[job]) error {
		select {
		case <-room:
		default: // it came twice
		}
		return nil
	}, &shards.Options[job]{Slots: 64 * k, Listener: &listener.Options[job]{Logger: slog.New(slog.DiscardHandler)}})
	if err != nil {
		return nil, err
	}
	w.running.Go(func() error { return w.listener.Run(ctx) })
	p := producer.New[job](q, nil)
	for i := range underWay * k {
		w.running.Go(func() error {
			for {
				select {
				case room <- struct{}{}:
				case <-ctx.Done():
					return nil
				}
				if _, err := p.Send(ctx, job{Number: i}, nil); err != nil && ctx.Err() == nil {
					return err
				}
			}
		})
	}
	return w, nil
}

// open opens and creates the queues, under new names, so that no limit is used yet. They share a transport that
// costs little, because sender, listener and server share the processors.
func (w *shardsWork) open(ctx context.Context, location string, k, underWay int) (all []queue.Queue, err error) {
	name := fmt.Sprintf("shards-%d", time.Now().UnixNano())
	transport, err := http1.New(&http1.Options{Connections: k * (64 + underWay)})
	if err != nil {
		return nil, err
	}
	w.closing.add(transport.Close)
	for i := range k {
		q, err := azurequeue.Open(location, fmt.Sprintf("%s-%d", name, i), &azurequeue.Options{Transport: transport})
		if err != nil {
			return nil, err
		}
		w.closing.add(q.Close)
		if err := q.Create(ctx, nil); err != nil {
			return nil, err
		}
		all = append(all, q)
	}
	return all, nil
}

// done returns how many jobs were handled and deleted.
func (w *shardsWork) done() int64 { return w.listener.State().Total.Outcomes[listener.Deleted] }

// look reads all counters at nearly the same instant. Processor time is that of both processes.
func (w *shardsWork) look(s *server) (sample, error) {
	state, err := s.look()
	if err != nil {
		return sample{}, err
	}
	own, err := processorTime()
	return sample{messages: w.done(), wall: time.Since(start), processor: own + state.Processor, requests: state.Requests, limited: state.Limited}, err
}

// stop stops the work without waiting for jobs that are left.
func (w *shardsWork) stop() error {
	w.cancel()
	if w.listener != nil {
		w.listener.Halt()
	}
	return errors.Join(w.running.Wait(), w.closing.close())
}

// table returns the results as Markdown.
func (p *sharding) table(all []*shardsTurn) string {
	var b strings.Builder
	b.WriteString("| shards k | jobs a second | of k times one shard | of what the limit allows | processors used | requests a job | 503 among them |\n|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, t := range all {
		perSecond, k, allowed := t.samples.median(sample.perSecond), float64(t.shards), "no limit"
		if p.limit > 0 {
			allowed = fmt.Sprintf("%.2f", perSecond/(float64(p.limit)*k/3)) // a job is put, got and deleted
		}
		single := all[0].samples.median(sample.perSecond) / float64(all[0].shards)
		fmt.Fprintf(&b, "| %d | %.0f | %.2f | %s | %.0f %% | %.2f | %.2f |\n", t.shards, perSecond, perSecond/single/k, allowed,
			t.samples.median(func(s sample) float64 {
				return 100 * s.processor.Seconds() / s.wall.Seconds() / float64(runtime.NumCPU())
			}),
			t.samples.median(func(s sample) float64 { return s.perMessage(float64(s.requests)) }),
			t.samples.median(func(s sample) float64 { return s.perMessage(float64(s.limited)) }))
	}
	return b.String()
}

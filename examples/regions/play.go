package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/paired"
)

// link is the network to a region in this process.
type link struct {
	server *emulator.Server
	down   atomic.Bool
}

// Do sends a request over it.
func (l *link) Do(r *http.Request) (*http.Response, error) {
	if l.down.Load() {
		return nil, syscall.ECONNREFUSED // as after a kill
	}
	time.Sleep(5 * time.Millisecond)
	return l.server.RoundTrip(r)
}

func (l *link) options() *azurequeue.Options {
	if l == nil {
		return nil
	}
	return &azurequeue.Options{Transport: l}
}

// faults sets the faults of the region. An empty text ends them.
func (l *link) faults(text string) error {
	rules, err := emulator.ParseFaults(text)
	if err != nil {
		return err
	}
	return l.server.SetFaults(&emulator.Faults{Seed: 1, Rules: rules})
}

// scene is a fault of the west, and its duration.
type scene struct {
	lasts  time.Duration
	says   string
	kill   bool
	faults string
}

// scenes take their time from the failover interval of the play, a second.
var scenes = []scene{
	{lasts: 2 * time.Second, says: "both regions work"},
	{lasts: 3 * time.Second, says: "the west is killed", kill: true},
	{lasts: 2 * time.Second, says: "the west is back"},
	{lasts: 2 * time.Second, says: "the west loses half of its responses", faults: "put:drop@50%"},
	{lasts: 2 * time.Second, says: "the west refuses the key of the producer", faults: "put:403"},
	{lasts: time.Second, says: "the west works again"},
}

// play plays an outage in this process and compares the accepted orders with the handled ones.
func play(ctx context.Context, out io.Writer) error {
	var links [2]*link
	for i := range links {
		server, err := emulator.New(nil, nil)
		if err != nil {
			return err
		}
		links[i] = &link{server: server}
	}
	west, east := links[0], links[1]
	quiet := slog.New(slog.DiscardHandler)
	q, err := open(west.server.ConnectionString(), east.server.ConnectionString(), west, east,
		&paired.Options{FailoverInterval: time.Second, ProbeInterval: time.Second, Logger: quiet})
	if err != nil {
		return err
	}
	defer func() { _ = q.Close() }()
	l := newLedger(out)
	w, err := newWorker(q, l, quiet)
	if err != nil {
		return err
	}
	working, stopWorking := context.WithCancel(ctx)
	selling, stopSelling := context.WithCancel(ctx)
	defer stopWorking()
	defer stopSelling()
	worked, sold := make(chan error, 1), make(chan error, 1)
	go func() { worked <- w.Run(working) }()
	go func() {
		sold <- millrace.Together(newShop(q, l, 20*time.Millisecond)).Run(selling)
	}()
	failure := act(ctx, west, l)
	stopSelling()
	if err := <-sold; failure == nil {
		failure = err
	}
	if failure == nil {
		failure = finish(ctx, l, func() int64 { return q.State().Diverted - w.syphon.State().Moved })
	}
	stopWorking()
	if err := <-worked; failure == nil {
		failure = err
	}
	if failure == nil {
		failure = l.compare(q.State(), w.syphon.State())
	}
	return failure
}

// act plays the scenes.
func act(ctx context.Context, west *link, l *ledger) error {
	for _, s := range scenes {
		l.say("*** %s", s.says)
		west.down.Store(s.kill)
		if err := west.faults(s.faults); err != nil {
			return err
		}
		select {
		case <-time.After(s.lasts):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// finish waits until all accepted orders are handled, and all diverted ones are home. If the
// response to a fetch was lost, its leases end within a minute.
func finish(ctx context.Context, l *ledger, away func() int64) error {
	for range 600 {
		if l.waiting() == 0 && away() <= 0 {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return fmt.Errorf("after two minutes %d orders that were accepted have not been handled, and %d are not home", l.waiting(), away())
}

// compare prints the balance.
func (l *ledger) compare(p paired.State, s paired.SyphonState) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	again, anyway := 0, 0
	for n, times := range l.times {
		again += times - 1
		if !l.accepted[n] {
			anyway++
		}
	}
	l.print("%d orders were accepted, and all of them were handled", len(l.accepted))
	l.print("%d sends failed; %d of their orders were handled anyway, because only the response was lost", l.failed, anyway)
	l.print("%d orders were diverted to the east, and %d were moved back, in %d requests", p.Diverted, s.Moved, s.Requests.Total())
	l.print("%d orders were handled a second time: a step without a response is repeated, even if it took effect.", again)
	l.print("That happened to %d sends, and to %d moves back", l.doubtful, s.Doubtful)
	return nil
}

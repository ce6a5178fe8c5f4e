package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/mosaic/roles"
	"github.com/millrace/millrace/examples/mosaic/web"
)

// servedProcessor is the command with which mosaic serve starts its processors. It is not in the help: people start mosaic
// processor.
const servedProcessor = "served-processor"

// reportEvery is how often a served processor reports what it does.
const reportEvery = 250 * time.Millisecond

// servedProcessorCommand is mosaic processor for mosaic serve: it reports on standard output what it does, takes orders
// on standard input, and ends when that does, so that it does not outlive the program that started it.
func servedProcessorCommand() cli.Command {
	return cli.Command{Name: servedProcessor, Run: func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		p := &childProcessor{stdin: os.Stdin, stdout: stdout}
		f := cli.NewFlags("mosaic " + servedProcessor)
		f.StringVar(&p.blobs, "blobs", "", "")
		if _, err := cli.ParseFlags(f, args, "blobs"); err != nil {
			return err
		}
		p.logger = plainlog.New(newDisplay(stderr, stderr))
		return millrace.Run(ctx, p)
	}}
}

// childProcessor is a processor that another process controls.
type childProcessor struct {
	account account.Flag // of the environment
	blobs   string
	logger  *slog.Logger
	stdin   io.Reader
	stdout  io.Writer
	delay   atomic.Int64 // nanoseconds, before a slice is stored
}

// Halt does nothing: a second signal reaches the listeners directly.
func (*childProcessor) Halt() {}

// Run works until ctx or the input ends.
func (p *childProcessor) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go p.listen(cancel) // reads until the process ends: a read of standard input cannot be interrupted
	return mosaicProgram.With(ctx, p.account, p.blobs, p.logger, func(a *account.Account, b *account.Blobs) error {
		b.Store = slowStore{b.Store, &p.delay}
		// One slice at a time: there are several processors on this machine.
		system, err := openRoles(ctx, a, b, roles.Options{Roles: roles.Processor, Processors: 1, Grace: grace, Logger: p.logger})
		if err != nil {
			return err
		}
		var reporting sync.WaitGroup
		defer reporting.Wait()
		defer cancel()
		reporting.Go(func() { p.report(ctx, system) })
		return millrace.Run(ctx, system.Runners()...)
	})
}

// listen takes orders until the input ends, which ends the process.
func (p *childProcessor) listen(end func()) {
	defer end()
	orders := json.NewDecoder(p.stdin)
	for {
		var o web.Order
		if orders.Decode(&o) != nil {
			return
		}
		p.delay.Store(int64(o.Delay))
	}
}

// report prints what the processor does, whenever that changes.
func (p *childProcessor) report(ctx context.Context, system *roles.System) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	last := web.Report{Handled: -1}
	for {
		state := system.States()[roles.ProcessorQueue]
		now := web.Report{Handled: state.Succeeded + state.Discarded, Loops: state.Loops, Handlers: state.Running}
		if now != last {
			last = now
			if json.NewEncoder(p.stdout).Encode(now) != nil {
				return // nobody listens
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// slowStore is a store that takes its time for slices, like a slow disk, when it is told to.
type slowStore struct {
	blob.Store
	delay *atomic.Int64
}

// Create implements [blob.Store].
func (s slowStore) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	if wait := time.Duration(s.delay.Load()); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return s.Store.Create(ctx, ref, r, o)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/user"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/roles"
	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// grace is how long handlers may finish after the mosaic is done or the user interrupts. Messages
// still being handled then are given back.
const grace = 2 * time.Second

// errStopped is the error of an interrupted program.
var errStopped = errors.New("stopped before the mosaic was finished")

// render makes the mosaic. Signals interrupt it at every step.
func render(ctx context.Context, s settings, stdout, stderr io.Writer) error {
	show := newDisplay(stdout, stderr)
	defer show.Close()
	return millrace.Run(ctx, &rendering{settings: s, show: show, logger: plainlog.New(show)})
}

// rendering makes one mosaic. It is a [millrace.Runner] that runs the roles.
type rendering struct {
	settings
	show     *display
	logger   *slog.Logger
	distinct atomic.Int64 // tiles in the mosaic; 0 if unknown
}

// Halt does nothing: a second signal reaches the roles directly, and every other step ends soon after
// the first.
func (*rendering) Halt() {}

// Run makes the mosaic and shows what was done.
func (r *rendering) Run(ctx context.Context) error {
	done, err := r.run(ctx)
	r.show.Close()
	if err != nil {
		// Errors after the interruption are its consequences.
		if ctx.Err() != nil {
			return errStopped
		}
		return err
	}
	done.print(r.show.Stdout())
	return nil
}

func (r *rendering) run(ctx context.Context) (_ summary, err error) {
	begin := time.Now()
	if err := notOnto(r.in, r.out); err != nil {
		return summary{}, err
	}
	a, err := account.Open(r.account, r.logger)
	if err != nil {
		return summary{}, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()

	source, err := newSource(r.in)
	if err != nil {
		return summary{}, err
	}
	plan, err := r.plan(source)
	if err != nil {
		return summary{}, err
	}
	output, err := newOutput(r.out)
	if err != nil {
		return summary{}, err
	}
	b, err := mosaicProgram.OpenBlobs(ctx, a, r.blobs)
	if err != nil {
		return summary{}, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()

	system, err := openRoles(ctx, a, b, roles.Options{Roles: r.played(), Grace: grace, Logger: r.logger})
	if err != nil {
		return summary{}, err
	}
	if !a.Embedded() {
		r.show.Say("queues at %s, blobs in %s", a.Endpoint(), b.Here)
	}
	library, err := r.library(ctx)
	if err != nil {
		return summary{}, err
	}
	system.Preload(library)
	r.show.Say("%s: %d×%d cells of %d pixels in %d slices, %s tiles to choose from", source.name, plan.Cols, plan.Rows, plan.Tile, plan.Slices, cli.Grouped(int64(library.Len())))
	order, err := r.order(ctx, system.Broker, source, plan, library, output)
	if err != nil {
		return summary{}, err
	}
	if err := r.make(ctx, system, order); err != nil {
		return summary{}, err
	}
	return summary{
		out: output.path, plan: plan, tiles: library.Len(), distinct: r.distinct.Load(),
		messages: order.Sent(), loops: system.LoopsPeak(), transactions: a.Requests(),
		took: time.Since(begin),
	}, nil
}

// played returns the roles of this process: all, or the client if the others work elsewhere.
func (r *rendering) played() roles.Roles {
	if r.account == account.Embedded || r.allRoles {
		return roles.All
	}
	return roles.Client
}

// plan returns how the picture is cut into tiles and slices.
func (r *rendering) plan(source *source) (picture.Plan, error) {
	header, err := source.header()
	if err != nil {
		return picture.Plan{}, err
	}
	plan, err := picture.NewPlan(header.Width, header.Height, r.tile, &picture.PlanOptions{Scale: r.scale, Format: r.format})
	if err != nil {
		return plan, fmt.Errorf("%s: %w", source.name, err)
	}
	if r.slices > plan.Rows {
		return plan, cli.UsageErrorf("-slices %d: %s has %d rows of tiles, and a slice is at least one", r.slices, source.name, plan.Rows)
	}
	if r.slices > 0 {
		plan.Slices = r.slices
	}
	return plan, nil
}

// order submits the picture.
func (r *rendering) order(ctx context.Context, broker *roles.Broker, source *source, plan picture.Plan, library *tiles.Library, output *output) (*roles.Order, error) {
	in, err := source.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // nothing was written
	var order *roles.Order
	submitted := make(chan struct{})
	defer close(submitted)
	order, err = broker.Submit(ctx, roles.Request{
		ClientID: clientID(), Picture: in, Library: library, Slices: plan.Slices, Format: r.format,
		Scale: r.scale, Tint: r.tint, Reuse: r.reuse,
		Deliver: func(mosaic io.Reader) error {
			<-submitted
			r.count(ctx, order)
			return output.replace(ctx, mosaic)
		},
		Progress: r.show.slices,
	})
	return order, err
}

// maxCount is how long the mosaic waits until its tiles are counted: a layout that was deleted does not come back.
const maxCount = 10 * time.Second

// count notes how many different tiles the mosaic has. Without that it is as good.
func (r *rendering) count(ctx context.Context, order *roles.Order) {
	if order == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, maxCount)
	defer cancel()
	if whole, err := order.Layout(ctx); err == nil {
		r.distinct.Store(int64(whole.Distinct()))
	}
}

// clientID returns the user's name.
func clientID() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "mosaic"
}

// make runs the roles until the order has ended.
func (r *rendering) make(ctx context.Context, system *roles.System, order *roles.Order) error {
	r.show.slices(nil, order.Slices)
	runners := append(system.Runners(), waiting{order})
	if r.played() != roles.All {
		runners = append(runners, &hints{order: order, show: r.show})
	}
	runErr := millrace.Run(ctx, runners...)
	finished, err := order.Finished()
	var (
		failed *roles.FailedError
		kept   *roles.KeptError
	)
	switch {
	case finished && err == nil:
		return nil
	case errors.As(err, &failed):
		// The user sees the error, so a later run need not find the rest.
		if e := order.Abandon(context.WithoutCancel(ctx)); e != nil {
			r.logger.Warn("cannot clean up", "error", e)
		}
		return fmt.Errorf("the mosaic could not be made: %w", err)
	case errors.As(err, &kept) && (r.account != account.Embedded || r.blobs != ""):
		return fmt.Errorf("%w; the mosaic is kept in %s", err, kept.Where)
	case finished:
		return err
	case runErr != nil:
		return runErr
	}
	return errStopped
}

// waiting is a [millrace.Runner] that returns when the order ends, which stops the other runners.
type waiting struct{ order *roles.Order }

func (w waiting) Run(ctx context.Context) error {
	_ = w.order.Wait(ctx) // Order.Finished returns the error
	return nil
}

// Halt does nothing: Run returns when its context ends.
func (waiting) Halt() {}

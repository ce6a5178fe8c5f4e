package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/user"
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
	distinct int64 // tiles in the mosaic; 0 if unknown
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
	r.show.Say("%s: %d×%d cells of %d pixels in %d slices, %s tiles to choose from", source.name, plan.Cols, plan.Rows, plan.Tile, plan.Slices, cli.Grouped(int64(library.Len())))
	order, err := r.order(ctx, system.Broker, source, plan, library)
	if err != nil {
		return summary{}, err
	}
	if err := r.make(ctx, system, order, output); err != nil {
		return summary{}, err
	}
	return summary{
		out: output.path, plan: plan, tiles: library.Len(), distinct: r.distinct,
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
func (r *rendering) order(ctx context.Context, broker *roles.Broker, source *source, plan picture.Plan, library *tiles.Library) (*roles.Order, error) {
	in, err := source.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // nothing was written
	return broker.Submit(ctx, roles.Request{
		ClientID: clientID(), Picture: in, Library: library, Slices: plan.Slices, Format: r.format,
		Scale: r.scale, Tint: r.tint, Reuse: r.reuse,
	})
}

// clientID returns the user's name.
func clientID() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "mosaic"
}

// make runs the roles until the mosaic is delivered, or cannot be made.
func (r *rendering) make(ctx context.Context, system *roles.System, order *roles.Order, output *output) error {
	w := &waiting{rendering: r, order: order, output: output, err: errStopped}
	if err := millrace.Run(ctx, append(system.Runners(), w)...); err != nil {
		return err
	}
	return w.err
}

// waiting is a [millrace.Runner] that delivers the mosaic and then returns, which stops the other runners.
type waiting struct {
	*rendering
	order  *roles.Order
	output *output
	err    error // how the order ended
}

// Run waits for the mosaic and delivers it.
func (w *waiting) Run(ctx context.Context) error {
	if err := w.deliver(ctx); ctx.Err() == nil {
		w.err = err
	}
	return nil
}

func (w *waiting) deliver(ctx context.Context) error {
	hints := &hints{show: w.show}
	err := w.order.Wait(ctx, func(p roles.Progress) error {
		if p.Poison != "" {
			return errors.New(p.Poison)
		}
		w.show.slices(len(p.Stored), p.Slices)
		if w.played() != roles.All {
			hints.see(p)
		}
		return nil
	})
	if err != nil {
		return w.failed(ctx, err)
	}
	w.show.slices(w.order.Slices, w.order.Slices)
	if whole, err := w.order.Layout(ctx); err == nil { // without it, the mosaic is as good
		w.distinct = int64(whole.Distinct())
	}
	err = w.order.Deliver(ctx, func(mosaic io.Reader) error { return w.output.replace(ctx, mosaic) })
	if kept := (*roles.KeptError)(nil); errors.As(err, &kept) && (w.account != account.Embedded || w.blobs != "") {
		return fmt.Errorf("%w; the mosaic is kept in %s", err, kept.Where)
	}
	return err
}

// failed returns the error of a mosaic that cannot be made for now. Poison of queues that outlive this process can be
// redriven.
func (w *waiting) failed(ctx context.Context, err error) error {
	if w.account != account.Embedded {
		return fmt.Errorf("the mosaic could not be made: %w; once its cause is mended, a redrive finishes it: millrace poison redrive, and mosaic clean says where the mosaic is", err)
	}
	if e := w.order.Cancel(context.WithoutCancel(ctx), err.Error()); e != nil {
		w.logger.Warn("cannot clean up", "error", e)
	}
	return fmt.Errorf("the mosaic could not be made: %w", err)
}

// Halt does nothing: Run returns when its context ends.
func (*waiting) Halt() {}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/roles"
	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// dataFolder is where blobs are stored if the account outlives the program: a message that is received
// later needs its blobs.
const dataFolder = "./mosaic-data"

// grace is how long handlers may finish after the mosaic is done or the user interrupts. Messages
// still being handled then are given back.
const grace = 2 * time.Second

// errStopped is the error of an interrupted program.
var errStopped = errors.New("stopped before the mosaic was finished")

// render makes the mosaic. Signals interrupt it at every step.
func render(ctx context.Context, s settings, stdout, stderr io.Writer) error {
	show := newProgress(stdout, stderr)
	defer show.close()
	return millrace.Run(ctx, &rendering{settings: s, show: show, logger: newLogger(show)})
}

// rendering makes one mosaic. It is a [millrace.Runner] that runs the roles.
type rendering struct {
	settings
	show   *progress
	logger *slog.Logger
}

// Halt does nothing: a second signal reaches the roles directly, and every other step ends soon after
// the first.
func (*rendering) Halt() {}

// Run makes the mosaic and shows what was done.
func (r *rendering) Run(ctx context.Context) error {
	done, err := r.run(ctx)
	r.show.close()
	if err != nil {
		// Errors after the interruption are its consequences.
		if ctx.Err() != nil {
			return errStopped
		}
		return err
	}
	done.print(r.show.stdout)
	return nil
}

func (r *rendering) run(ctx context.Context) (_ summary, err error) {
	begin := time.Now()
	if err := notOnto(r.in, r.out); err != nil {
		return summary{}, err
	}
	account, err := openAccount(r.account, r.logger)
	if err != nil {
		return summary{}, err
	}
	defer func() { err = errors.Join(err, account.close()) }()

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
	store, place, closeStore, err := r.openBlobs()
	if err != nil {
		return summary{}, err
	}
	defer func() { err = errors.Join(err, closeStore()) }()

	first, cancel := context.WithTimeout(ctx, account.patience())
	system, err := roles.Open(first, account.queue, store, &roles.Options{Idle: account.idle(), Wakeups: account.wakeups, Grace: grace, Logger: r.logger, Place: place})
	cancel()
	if err != nil {
		return summary{}, elsewhere(err)
	}
	library, err := r.library(ctx)
	if err != nil {
		return summary{}, err
	}
	system.Preload(library)
	r.show.say("%s: %d×%d cells of %d pixels in %d slices, %s tiles to choose from", source.name, plan.Cols, plan.Rows, plan.Tile, plan.Slices, grouped(int64(library.Len())))
	order, err := r.order(ctx, system.Broker, source, plan, library, output)
	if err != nil {
		return summary{}, err
	}
	if err := r.make(ctx, system, order); err != nil {
		return summary{}, elsewhere(err)
	}
	return summary{
		out: output.path, plan: plan, tiles: library.Len(),
		messages: order.Sent(), loops: system.LoopsPeak(), transactions: account.requests.Load(),
		took: time.Since(begin),
	}, nil
}

// plan returns how the picture is cut into tiles and slices.
func (r *rendering) plan(source *source) (picture.Plan, error) {
	header, err := source.header()
	if err != nil {
		return picture.Plan{}, err
	}
	whole, err := picture.NewPlan(header.Width, header.Height, r.tile, 1)
	if err != nil {
		return whole, fmt.Errorf("%s: %w", source.name, err)
	}
	slices := r.slices
	if r.adaptable {
		slices = min(slices, whole.Rows)
	}
	if slices > whole.Rows {
		return whole, usageErrorf("-slices %d: %s has %d rows of tiles, and a slice is at least one", slices, source.name, whole.Rows)
	}
	if size := whole.Size(); r.format == picture.JPEG && max(size.X, size.Y) > maxJPEGSide {
		return whole, fmt.Errorf("cannot write %s: a JPEG has at most %d pixels a side and the mosaic %d×%d: choose a name ending in .png", r.out, maxJPEGSide, size.X, size.Y)
	}
	whole.Slices = slices
	return whole, nil
}

// maxJPEGSide is the maximum in the header of a JPEG.
const maxJPEGSide = 1<<16 - 1

// elsewhere adds what to do if programs use different blob stores.
func elsewhere(err error) error {
	if e := (*roles.ElsewhereError)(nil); errors.As(err, &e) {
		return fmt.Errorf("%w; give -blobs the same folder, or wait until the others are done; abandoned messages are "+
			"deleted by millrace clear imagerequest, and the same for slicerequest, sliceresponse and imageresponse", e)
	}
	return err
}

// openBlobs opens the store and returns its place and a function that closes it. Even a temporary
// store is in files, because a large picture, its slices and the mosaic need too much memory.
func (r *rendering) openBlobs() (_ blob.Store, place string, _ func() error, _ error) {
	path, remove := r.blobs, func() error { return nil }
	switch {
	case path != "":
	case r.account == embedded:
		var err error
		if path, err = os.MkdirTemp("", "mosaic-"); err != nil {
			return nil, "", nil, fmt.Errorf("make a temporary folder: %w", err)
		}
		remove = func() error { return os.RemoveAll(path) }
	default:
		path = dataFolder
	}
	store, err := blob.Dir(path)
	if err != nil {
		return nil, "", nil, errors.Join(err, remove())
	}
	return store, placeOf(path), func() error { return errors.Join(store.Close(), remove()) }, nil
}

// placeOf describes a folder for people on any machine.
func placeOf(folder string) string {
	if absolute, err := filepath.Abs(folder); err == nil {
		folder = absolute
	}
	if host, err := os.Hostname(); err == nil {
		return folder + " on " + host
	}
	return folder
}

// library generates the tiles, or makes them from a folder.
func (r *rendering) library(ctx context.Context) (*tiles.Library, error) {
	if r.tiles == "" {
		return tiles.Generate(r.tile)
	}
	r.show.say("reading tiles from %s", r.tiles)
	var skipped []skippedTile
	library, err := tiles.FromDir(ctx, r.tiles, r.tile, func(file string, err error) {
		skipped = append(skipped, skippedTile{file, err})
	})
	if err != nil {
		if len(skipped) > 0 {
			return nil, fmt.Errorf("%w: the first is %s: %w", err, skipped[0].file, skipped[0].err)
		}
		return nil, err
	}
	for i, s := range skipped {
		if i == maxSkippedShown {
			r.logger.Warn("more tiles were skipped", "files", len(skipped)-i)
			break
		}
		r.logger.Warn("tile skipped", "file", s.file, "reason", s.err)
	}
	return library, nil
}

type skippedTile struct {
	file string
	err  error
}

// maxSkippedShown is the maximum number of warnings about skipped tiles.
const maxSkippedShown = 10

// order submits the picture.
func (r *rendering) order(ctx context.Context, broker *roles.Broker, source *source, plan picture.Plan, library *tiles.Library, output *output) (*roles.Order, error) {
	in, err := source.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // nothing was written
	return broker.Submit(ctx, roles.Request{
		ClientID: clientID(), Picture: in, Library: library, Slices: plan.Slices, Format: r.format,
		Deliver:  func(mosaic io.Reader) error { return output.replace(ctx, mosaic) },
		Progress: r.show.slices,
	})
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
	r.show.slices(0, order.Slices)
	runErr := millrace.Run(ctx, append(system.Runners(), waiting{order, system})...)
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
	case errors.As(err, &kept) && (r.account != embedded || r.blobs != ""):
		return fmt.Errorf("%w; the mosaic is kept in %s", err, kept.Where)
	case finished:
		return err
	case runErr != nil:
		return runErr
	}
	return errStopped
}

// waiting is a [millrace.Runner] that returns when the order ends, which stops the other runners.
type waiting struct {
	order  *roles.Order
	system *roles.System
}

func (w waiting) Run(ctx context.Context) error {
	_ = w.order.Wait(ctx) // Order.Finished returns the error
	w.system.Yield()
	return nil
}

// Halt does nothing: Run returns when its context ends.
func (waiting) Halt() {}

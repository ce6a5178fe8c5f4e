package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/roles"
	"github.com/millrace/millrace/examples/mosaic/tiles"
)

const renderHelp = `Usage: mosaic render -in FILE -out FILE [flags]

Renders a JPEG, PNG, GIF, WebP, TIFF or BMP to a PNG.

Flags:

  -in FILE           the picture, up to 50 megapixels
  -out FILE          the mosaic; replaced only when the new one is finished
  -tile N            side of a tile in pixels, 1 to 64 (default 16)
  -slices N          number of slices the picture is cut into, 1 to the rows of tiles
                     (default 8, more for a large mosaic, fewer for one with fewer rows)
  -scale S           the mosaic is S times as wide and high as the picture, up to
                     100 megapixels; a number such as 2 or 0.75 (default 1)
  -tint P            mix P per cent of the picture into the tiles, 0 to 40 (default 12)
  -reuse R           how freely a tile is used again: 0 uses all tiles about equally
                     often, 100 takes the best match however often (default 80)
  -tiles DIR         make the tiles from the pictures in this folder and its subfolders
                     (default: generated tiles)
  -account LOCATION  where the queues are (default: the environment variable AZURE_STORAGE,
                     or else embedded):
                       embedded                      in this process, with all roles
` + locationHelp + `  -roles client|all  the work of this process on such an account: be the client of mosaic
                     controller and mosaic processor, or do their work too (default client)
` + blobsHelp

// settings are the parsed command line.
type settings struct {
	in, out  string // in is empty for the sample
	tile     int
	scale    float64
	tint     int // in per cent
	reuse    int
	slices   int // 0 for the default
	tiles    string
	account  string
	allRoles bool // on an account that is not embedded
	blobs    string
}

// Defaults of settings.
const (
	defaultTile = 16
	defaultOut  = "mosaic.png"
)

// grace is how long handlers may finish after the mosaic is done or the user interrupts. Messages
// still being handled then are given back.
const grace = 2 * time.Second

// errStopped is the error of an interrupted program.
var errStopped = errors.New("stopped before the mosaic was finished")

func runRender(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parseRender(args)
	if err != nil {
		return err
	}
	return render(ctx, s, stdout, stderr)
}

func parseRender(args []string) (s settings, err error) {
	f := cli.NewFlags("mosaic render")
	f.StringVar(&s.in, "in", "", "")
	f.StringVar(&s.out, "out", "", "")
	f.IntVar(&s.tile, "tile", defaultTile, "")
	f.IntVar(&s.slices, "slices", 0, "")
	f.Float64Var(&s.scale, "scale", 1, "")
	f.IntVar(&s.tint, "tint", layout.DefaultTint, "")
	f.IntVar(&s.reuse, "reuse", layout.DefaultReuse, "")
	f.StringVar(&s.tiles, "tiles", "", "")
	var at account.Flag
	f.StringVar(&at.Given, "account", "", "")
	played := f.String("roles", "client", "")
	f.StringVar(&s.blobs, "blobs", "", "")
	given, err := cli.ParseFlags(f, args, "tiles", "account", "blobs")
	switch {
	case err != nil:
		return s, err
	case s.in == "" || s.out == "":
		return s, cli.UsageErrorf("-in FILE or -out FILE is missing; see mosaic render -h")
	case !strings.EqualFold(filepath.Ext(s.out), ".png"):
		return s, cli.UsageErrorf("-out %s is not a PNG: give it a name ending in .png", s.out)
	case *played != "client" && *played != "all":
		return s, cli.UsageErrorf("-roles %q is neither client nor all", *played)
	case s.tile < 1 || s.tile > tiles.MaxSize:
		return s, cli.UsageErrorf("-tile %d is outside 1…%d", s.tile, tiles.MaxSize)
	case given["slices"] && s.slices < 1:
		return s, cli.UsageErrorf("-slices %d must be at least 1", s.slices)
	}
	s.allRoles = *played == "all"
	if err := errors.Join((layout.Options{Reuse: s.reuse, Tint: s.tint}).Validate(), picture.CheckScale(s.scale)); err != nil {
		return s, &cli.UsageError{Err: err}
	}
	s.account, err = at.LocationOr(account.Embedded)
	return s, err
}

// render makes the mosaic. Signals interrupt it at every step.
func render(ctx context.Context, s settings, stdout, stderr io.Writer) error {
	show := cli.NewShow(stdout, stderr)
	return millrace.Run(ctx, cli.Task(func(ctx context.Context) error {
		err := s.render(ctx, show)
		if ctx.Err() != nil && err != nil {
			return errStopped // errors after the interruption are its consequences
		}
		return err
	}))
}

func (s settings) render(ctx context.Context, show *cli.Show) (err error) {
	begin := time.Now()
	output, err := newOutput(s.in, s.out)
	if err != nil {
		return err
	}
	logger := plainlog.New(show)
	a, err := account.Open(s.account, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	name, in, err := readInput(s.in)
	if err != nil {
		return err
	}
	plan, err := s.plan(name, in)
	if err != nil {
		return err
	}
	b, err := mosaicProgram.OpenBlobs(ctx, a, s.blobs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	o := roles.Options{Roles: roles.Client, Logger: logger}
	if a.Embedded() || s.allRoles {
		o.Roles = roles.All
	}
	system, err := openRoles(ctx, a, b, o)
	if err != nil {
		return err
	}
	if !a.Embedded() {
		show.Say("queues at %s, blobs in %s", a.Endpoint(), b.Here)
	}
	library, err := s.library(ctx, show)
	if err != nil {
		return err
	}
	show.Say("%s: %d×%d cells of %d pixels in %d slices, %s tiles to choose from", name, plan.Cols, plan.Rows, plan.Tile, plan.Slices, cli.Grouped(int64(library.Len())))
	client := "mosaic"
	if u, err := user.Current(); err == nil {
		client = cmp.Or(u.Username, client)
	}
	order, err := system.Broker.Submit(ctx, roles.Request{
		ClientID: client, Picture: bytes.NewReader(in), Library: library, Slices: plan.Slices,
		Scale: s.scale, Tint: s.tint, Reuse: s.reuse,
	})
	if err != nil {
		return err
	}

	// The roles run until the mosaic is delivered, or cannot be made.
	distinct, result := 0, errStopped
	err = millrace.Run(ctx, append(system.Runners(), cli.Task(func(ctx context.Context) error {
		n, err := s.deliver(ctx, order, show, output, o.Roles)
		if ctx.Err() == nil || err == nil {
			distinct, result = n, err
		}
		return nil
	}))...)
	if err = errors.Join(err, result); err != nil {
		return err
	}
	path, size, stdout := output.path, plan.Size(), show.Stdout
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	cli.Say(stdout, "The mosaic is in %s\n", path)
	cli.Say(stdout, "  size                  %d×%d pixels, %s cells of %d×%d\n", size.X, size.Y, cli.Grouped(int64(plan.Cols)*int64(plan.Rows)), plan.Tile, plan.Tile)
	cli.Say(stdout, "  tile library          %s tiles, %s of them used\n", cli.Grouped(int64(library.Len())), cli.Grouped(int64(distinct)))
	cli.Say(stdout, "  slices                %d\n", plan.Slices)
	cli.Say(stdout, "  messages              %d\n", order.Sent())
	cli.Say(stdout, "  storage transactions  %s\n", cli.Grouped(a.Requests()))
	cli.Say(stdout, "  time                  %.1f s\n", time.Since(begin).Seconds())
	return nil
}

// readInput reads the picture, or the sample if no file is named.
func readInput(path string) (name string, data []byte, err error) {
	if path == "" {
		var b bytes.Buffer
		img := picture.Sample()
		err := picture.Encode(&b, img)
		return "built-in photograph", b.Bytes(), err
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is not a regular file", path)
	case info.Size() > maxInput:
		err = fmt.Errorf("%s has %d MB, and may have %d", path, info.Size()>>20, maxInput>>20)
	default:
		data, err = os.ReadFile(path)
	}
	if err != nil {
		err = fmt.Errorf("cannot read the picture: %w", err)
	}
	return path, data, err
}

// maxInput is the size of a file: a picture of 50 megapixels without compression has 200 MB.
const maxInput = 256 << 20

// plan returns how the picture is cut into tiles and slices.
func (s settings) plan(name string, in []byte) (picture.Plan, error) {
	header, err := picture.Inspect(bytes.NewReader(in))
	if err != nil {
		return picture.Plan{}, fmt.Errorf("cannot read %s: %w", name, err)
	}
	plan, err := picture.NewPlan(header.Width, header.Height, s.tile, picture.PlanOptions{Scale: s.scale})
	if err != nil {
		return plan, fmt.Errorf("%s: %w", name, err)
	}
	if s.slices > plan.Rows {
		return plan, cli.UsageErrorf("-slices %d: %s has %d rows of tiles, and a slice is at least one", s.slices, name, plan.Rows)
	}
	plan.Slices = cmp.Or(s.slices, plan.Slices)
	return plan, nil
}

// library generates the tiles, or makes them of the photographs in a folder, and reports on them.
func (s settings) library(ctx context.Context, show *cli.Show) (*tiles.Library, error) {
	if s.tiles == "" {
		return tiles.Generate(s.tile)
	}
	show.Say("reading tiles from %s", s.tiles)
	library, skipped, err := tiles.FromDir(ctx, s.tiles, s.tile, show.Tenths("photographs are read"))
	if err != nil {
		return nil, err
	}
	show.Say("photographs: %d of %d used", library.Len(), library.Len()+len(skipped))
	logger := plainlog.New(show)
	const most = 10
	for _, file := range skipped[:min(len(skipped), most)] {
		logger.Warn("tile skipped: " + cli.InLine(file.Name) + ": " + file.Err.Error())
	}
	if len(skipped) > most {
		logger.Warn("more tiles were skipped", "files", len(skipped)-most)
	}
	if library.Len() < 200 {
		show.Say("this library is small: a few hundred photographs make a better mosaic")
	}
	return library, nil
}

// deliver waits for the mosaic and writes its file. It returns how many distinct tiles the mosaic has.
func (s settings) deliver(ctx context.Context, order *roles.Order, show *cli.Show, output *output, played roles.Roles) (distinct int, err error) {
	const quiet = 5 * time.Second // longer than a slice takes
	last, since, told := -1, time.Now(), played == roles.All
	finished := show.Tenths("slices are finished")
	err = order.Wait(ctx, func(p roles.Progress) error {
		if p.Poison != "" {
			return errors.New(p.Poison)
		}
		n := len(p.Stored)
		finished(n, order.Slices)
		if n != last {
			last, since = n, time.Now()
		}
		if !told && time.Since(since) >= quiet {
			told = true
			show.Say("still waiting: no slice was finished for %v. Start mosaic controller and mosaic processor in other terminals, or use -roles all; the work of a killed one is taken up again half a minute later", quiet)
		}
		return nil
	})
	switch {
	case err != nil && s.account != account.Embedded: // its poison can be redriven
		return 0, fmt.Errorf("the mosaic could not be made: %w; once its cause is mended, a redrive finishes it: millrace poison redrive; the mosaic is then among the blobs, in imageoutput", err)
	case err != nil:
		return 0, fmt.Errorf("the mosaic could not be made: %w", errors.Join(err, order.Cancel(context.WithoutCancel(ctx), err.Error())))
	}
	finished(order.Slices, order.Slices)
	whole, err := order.Layout(ctx)
	if err != nil {
		return 0, err
	}
	err = order.Deliver(ctx, func(mosaic io.Reader) error { return output.replace(ctx, mosaic) })
	if err != nil && (s.account != account.Embedded || s.blobs != "") {
		return 0, fmt.Errorf("%w; the mosaic is kept among the blobs, in imageoutput", err)
	}
	return whole.Distinct(), err
}

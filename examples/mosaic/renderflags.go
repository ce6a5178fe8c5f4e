package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"strconv"

	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/tiles"
)

const renderHelp = `Usage: mosaic render -in FILE -out FILE [flags]

Renders a JPEG, PNG, GIF, WebP, TIFF or BMP to a .png, .jpg or .jpeg.

Flags:

  -in FILE           the picture, up to 50 megapixels
  -out FILE          the mosaic; replaced only when the new one is finished
  -tile N            side of a tile in pixels, 1 to 64 (default 16)
  -slices N          number of slices the picture is cut into, 1 to the rows of tiles
                     (default 8, more for a large mosaic, fewer for one with fewer rows)
  -scale S           the mosaic is S times as wide and high as the picture, up to
                     100 megapixels; a number such as 2 or 0.75 (default 1)
  -tint P            mix P per cent of the picture into the tiles, 0 to 40 (default 12)
  -reuse R           how freely a tile is used again: 0 uses every tile once as far as
                     they go, 100 takes the best match however often (default 80)
  -tiles DIR         make the tiles from the pictures in this folder and those within it
                     (default: generated tiles)
  -account LOCATION  where the queues are (default: the environment variable AZURE_STORAGE,
                     or else embedded):
                       embedded                      in this process, with all roles
                       UseDevelopmentStorage=true    the server on this machine
                       a storage connection string
                       https://ACCOUNT.queue.core.windows.net
                       @FILE                         a file with one of them
  -roles client|all  what this process does on such an account: it is the client of mosaic
                     controller and mosaic processor, or does their work too (default client)
  -blobs DIR         where pictures are stored; the same for all processes on the account
                     (default: a folder for the account in your data directory, or the blob
                     service of an account in Azure or Azurite)
`

func renderCommand() cli.Command {
	return cli.Command{Name: "render", Does: "make a mosaic of a photograph", Help: renderHelp,
		Run: func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
			s, err := parseRender(args)
			if err != nil {
				return err
			}
			return render(ctx, s, stdout, stderr)
		}}
}

// settings are the parsed command line.
type settings struct {
	in, out  string // in is empty for the sample
	tile     int
	scale    picture.Scale
	tint     int // in per cent
	reuse    layout.Reuse
	slices   int // 0 for the default
	tiles    string
	account  string
	allRoles bool // on an account that is not embedded
	blobs    string
	format   picture.Format // of out
}

// Defaults of settings.
const (
	defaultTile = 16
	defaultOut  = "mosaic.png"
)

func parseRender(args []string) (settings, error) {
	s := settings{}
	f := cli.NewFlags("mosaic render")
	f.StringVar(&s.in, "in", "", "")
	f.StringVar(&s.out, "out", "", "")
	f.IntVar(&s.tile, "tile", defaultTile, "")
	f.IntVar(&s.slices, "slices", 0, "")
	s.mosaicFlags(f)
	f.StringVar(&s.tiles, "tiles", "", "")
	var flagged account.Flag
	f.StringVar(&flagged.Given, "account", "", "")
	played := f.String("roles", "client", "")
	f.StringVar(&s.blobs, "blobs", "", "")
	given, err := cli.ParseFlags(f, args, "tiles", "account", "blobs")
	if err != nil {
		return s, err
	}
	if *played != "client" && *played != "all" {
		return s, cli.UsageErrorf("-roles %q is neither client nor all", *played)
	}
	s.allRoles = *played == "all"
	for _, name := range []string{"in", "out"} {
		if f.Lookup(name).Value.String() == "" {
			return s, cli.UsageErrorf("-%s FILE is missing; see mosaic render -h", name)
		}
	}
	if s.tile < 1 || s.tile > tiles.MaxSize {
		return s, cli.UsageErrorf("-tile %d is outside 1…%d", s.tile, tiles.MaxSize)
	}
	if err := (&layout.Options{Reuse: s.reuse, Tint: s.tint}).Validate(); err != nil {
		return s, &cli.UsageError{Err: err}
	}
	if s.account, err = flagged.LocationOr(account.Embedded); err != nil {
		return s, err
	}
	if given["slices"] && s.slices < 1 {
		return s, cli.UsageErrorf("-slices %d must be at least 1", s.slices)
	}
	if s.format, err = picture.FormatOf(s.out); err != nil {
		return s, &cli.UsageError{Err: err}
	}
	return s, nil
}

// mosaicFlags defines the flags for the look of a mosaic.
func (s *settings) mosaicFlags(f *flag.FlagSet) {
	f.Func("scale", "", func(text string) (err error) {
		s.scale, err = picture.ParseScale(text)
		return err
	})
	f.IntVar(&s.tint, "tint", layout.DefaultTint, "")
	f.Func("reuse", "", func(text string) error {
		percent, err := strconv.Atoi(text)
		if err != nil {
			return errors.New("it is not a number")
		}
		s.reuse = layout.ReusePercent(percent)
		return nil
	})
}

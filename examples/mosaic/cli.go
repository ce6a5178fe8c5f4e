package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// Exit statuses.
const (
	statusDone   = 0
	statusFailed = 1
	statusUsage  = 2
)

const usage = `Mosaic turns a photograph into a photo mosaic.

Usage:

  mosaic
        make a sample picture and render it to mosaic.png

  mosaic render -in FILE -out FILE [flags]
        render a JPEG, PNG or GIF to a .png, .jpg or .jpeg

Flags of render:

  -in FILE           the picture, up to 50 megapixels
  -out FILE          the mosaic; replaced only when the new one is finished
  -tile N            side of a tile in pixels, 1 to 64 (default 16)
  -slices N          number of slices the picture is cut into, 1 to the rows of tiles
                     (default 8, or fewer for a picture with fewer rows)
  -tiles DIR         make the tiles from the pictures in this folder
                     (default: generated tiles)
  -account LOCATION  where the queues are (default embedded):
                       embedded                      in this process
                       UseDevelopmentStorage=true    an emulator on this machine
                       a storage connection string
                       https://ACCOUNT.queue.core.windows.net
  -blobs DIR         where pictures are stored while the mosaic is made
                     (default ./mosaic-data; with embedded, a temporary folder)

Exit status: 0 success, 1 the mosaic could not be made, 2 invalid command line.
`

// settings are the parsed command line.
type settings struct {
	in, out   string // in is empty for the sample
	tile      int
	slices    int
	adaptable bool // slices is the default and may be reduced
	tiles     string
	account   string
	blobs     string
	format    picture.Format // of out
}

// Defaults of settings.
const (
	defaultTile   = 16
	defaultSlices = 8
	defaultOut    = "mosaic.png"
)

// command runs the program and returns its exit status. An error is one line on stderr.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		say(stdout, "%s", usage)
		return statusDone
	}
	if err == nil {
		err = render(ctx, s, stdout, stderr)
	}
	if err == nil {
		return statusDone
	}
	say(stderr, "mosaic: %s\n", oneLine(err))
	if wrong := (*usageError)(nil); errors.As(err, &wrong) {
		return statusUsage
	}
	return statusFailed
}

// say prints for a person. It ignores errors: the mosaic matters more than the output.
func say(w io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) }

// usageError is an invalid command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usageErrorf(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// oneLine returns the text of an error on one line; joined errors have several.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// parse parses the arguments. It returns [flag.ErrHelp] if they ask for help.
func parse(args []string) (settings, error) {
	if len(args) == 0 {
		return settings{out: defaultOut, tile: defaultTile, slices: defaultSlices, adaptable: true, account: embedded}, nil
	}
	switch args[0] {
	case "render":
		return parseRender(args[1:])
	case "help", "-h", "-help", "--help":
		return settings{}, flag.ErrHelp
	}
	what := "command"
	if strings.HasPrefix(args[0], "-") {
		what = "flag"
	}
	return settings{}, usageErrorf("unknown %s %q; see mosaic -h", what, args[0])
}

func parseRender(args []string) (settings, error) {
	s := settings{}
	f := flag.NewFlagSet("render", flag.ContinueOnError)
	f.SetOutput(io.Discard) // we print its errors ourselves, on one line
	f.StringVar(&s.in, "in", "", "")
	f.StringVar(&s.out, "out", "", "")
	f.IntVar(&s.tile, "tile", defaultTile, "")
	f.IntVar(&s.slices, "slices", defaultSlices, "")
	f.StringVar(&s.tiles, "tiles", "", "")
	f.StringVar(&s.account, "account", embedded, "")
	f.StringVar(&s.blobs, "blobs", "", "")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return s, err
		}
		return s, usageErrorf("%w; see mosaic -h", err)
	}
	given := map[string]bool{}
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	s.adaptable = !given["slices"]
	if f.NArg() > 0 {
		return s, usageErrorf("unexpected argument %q; see mosaic -h", f.Arg(0))
	}
	for _, name := range []string{"in", "out"} {
		if f.Lookup(name).Value.String() == "" {
			return s, usageErrorf("-%s FILE is missing; see mosaic -h", name)
		}
	}
	for _, name := range []string{"tiles", "blobs"} {
		if given[name] && f.Lookup(name).Value.String() == "" {
			return s, usageErrorf("-%s is empty: give the name of a folder", name)
		}
	}
	if s.tile < 1 || s.tile > tiles.MaxSize {
		return s, usageErrorf("-tile %d is outside 1…%d", s.tile, tiles.MaxSize)
	}
	if s.slices < 1 {
		return s, usageErrorf("-slices %d must be at least 1", s.slices)
	}
	var err error
	if s.format, err = picture.FormatOf(s.out); err != nil {
		return s, &usageError{err}
	}
	return s, nil
}

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"image"
	"io"
	"path/filepath"

	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
)

const compareHelp = `Usage: mosaic compare [-cell N] PICTURE MOSAIC...

Scores mosaics of one picture, made by any program. Less is better.

Flags:

  -cell N  side of the cells in pixels of PICTURE, 3 or more (default 4)

Columns:

  outliers  share of cells that are off in hue or chroma by more than 0.10, in OKLab
  near      mean error of the nine sub-cells of each cell, in OKLab
  far       mean error of the mosaic from a distance at which its cells blur
  score     near + far + outliers
`

func runCompare(_ context.Context, args []string, stdout, _ io.Writer) error {
	f := cli.NewFlags("mosaic compare")
	cell := f.Int("cell", 4, "")
	switch err := f.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return cli.UsageErrorf("%w; see mosaic compare -h", err)
	case f.NArg() < 2:
		return cli.UsageErrorf("mosaic compare needs a picture and at least one mosaic of it")
	}
	var pictures []image.Image
	for _, path := range f.Args() {
		_, file, err := readInput(path)
		if err != nil {
			return err
		}
		img, err := picture.Decode(bytes.NewReader(file))
		if err != nil {
			return fmt.Errorf("cannot read %s: %w", path, err)
		}
		pictures = append(pictures, img)
	}
	cli.Say(stdout, "%8s %7s %7s %7s  %s\n", "outliers", "near", "far", "score", "mosaic")
	for i, mosaic := range pictures[1:] {
		path := f.Arg(i + 1)
		s, err := layout.Compare(pictures[0], mosaic, *cell)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		cli.Say(stdout, "%7.1f%% %7.4f %7.4f %7.4f  %s\n", 100*s.Outliers, s.Near, s.Far, s.Total(), cli.InLine(filepath.Base(path)))
	}
	return nil
}

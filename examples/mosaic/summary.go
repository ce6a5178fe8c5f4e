package main

import (
	"io"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/mosaic/picture"
)

// summary is the report of a finished mosaic.
type summary struct {
	out          string
	plan         picture.Plan
	tiles        int
	distinct     int64 // tiles in the mosaic; 0 if unknown
	messages     int
	loops        int
	transactions int64
	took         time.Duration
}

func (s summary) print(w io.Writer) {
	path, err := filepath.Abs(s.out)
	if err != nil {
		path = s.out
	}
	size := s.plan.Size()
	cli.Say(w, "The mosaic is in %s\n", path)
	cli.Say(w, "  size                  %d×%d pixels, %s cells of %d×%d\n", size.X, size.Y, cli.Grouped(int64(s.plan.Cols)*int64(s.plan.Rows)), s.plan.Tile, s.plan.Tile)
	cli.Say(w, "  tile library          %s tiles%s\n", cli.Grouped(int64(s.tiles)), s.used())
	cli.Say(w, "  slices                %d\n", s.plan.Slices)
	cli.Say(w, "  messages              %d\n", s.messages)
	cli.Say(w, "  loops at peak         %d\n", s.loops)
	cli.Say(w, "  storage transactions  %s\n", cli.Grouped(s.transactions))
	cli.Say(w, "  time                  %.1f s\n", s.took.Seconds())
}

// used says how many of the tiles are in the mosaic.
func (s summary) used() string {
	if s.distinct == 0 {
		return ""
	}
	return ", " + cli.Grouped(s.distinct) + " of them used"
}

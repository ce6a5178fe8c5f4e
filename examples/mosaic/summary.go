package main

import (
	"io"
	"path/filepath"
	"strconv"
	"time"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// summary is the report of a finished mosaic.
type summary struct {
	out          string
	plan         picture.Plan
	tiles        int
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
	say(w, "The mosaic is in %s\n", path)
	say(w, "  size                  %d×%d pixels, %s cells of %d×%d\n", size.X, size.Y, grouped(int64(s.plan.Cols)*int64(s.plan.Rows)), s.plan.Tile, s.plan.Tile)
	say(w, "  tile library          %s tiles\n", grouped(int64(s.tiles)))
	say(w, "  slices                %d\n", s.plan.Slices)
	say(w, "  messages              %d\n", s.messages)
	say(w, "  loops at peak         %d\n", s.loops)
	say(w, "  storage transactions  %s\n", grouped(s.transactions))
	say(w, "  time                  %.1f s\n", s.took.Seconds())
}

// grouped formats a number with commas between thousands.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

package main

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// fromFolder makes the tiles of the photographs in a folder, and says what became of them.
func (r *rendering) fromFolder(ctx context.Context) (*tiles.Library, error) {
	r.show.Say("reading tiles from %s", r.tiles)
	var skipped []skippedTile
	library, summary, err := tiles.FromDir(ctx, r.tiles, r.tile, &tiles.DirOptions{
		Progress: r.show.photographs,
		Skipped:  func(file string, err error) { skipped = append(skipped, skippedTile{file, err}) },
	})
	if err != nil {
		if len(skipped) > 0 {
			return nil, fmt.Errorf("%w: the first is %s: %w", err, cli.InLine(skipped[0].file), skipped[0].err)
		}
		return nil, err
	}
	r.show.Say("photographs: %v", summary)
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

package main

import (
	"errors"
	"io"
	"maps"
	"slices"

	"github.com/millrace/millrace/emulator"
)

// trouble adds to the options what -faults and -limit ask for.
func (s *settings) trouble(*emulator.Options) error {
	if s.faults != "" || s.limit != "" {
		return errors.New("-faults and -limit are not in this build: leave them out")
	}
	return nil
}

// printCounts writes the table of requests by operation.
func printCounts(out io.Writer, counts emulator.Counts) {
	for _, op := range slices.Sorted(maps.Keys(counts.Operations)) {
		say(out, "%-26s %12d", op, counts.Operations[op])
	}
	say(out, "%-26s %12d", "all requests", counts.Requests())
}

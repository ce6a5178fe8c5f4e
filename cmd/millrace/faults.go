package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/millrace/millrace/emulator"
)

// trouble adds to the options what -faults, -limit and -log ask for.
func (s *settings) trouble(*emulator.Options, io.Writer) error {
	if s.faults != "" || s.limit != "" {
		return errors.New("-faults and -limit are not in this build: leave them out")
	}
	return nil
}

// printCounts writes the table of requests by operation.
func printCounts(out io.Writer, counts emulator.Counts) {
	for _, op := range slices.Sorted(maps.Keys(counts.Operations)) {
		fmt.Fprintf(out, "%-26s %12d\n", op, counts.Operations[op])
	}
	fmt.Fprintf(out, "%-26s %12d\n", "all requests", counts.Requests())
}

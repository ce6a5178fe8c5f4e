package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/internal/progress"
)

const generateHelp = `Usage: billing generate [flags] > usage.csv

Writes usage records that look real. Their tariffs are those in records/tariffs.csv.

Flags:

` + generatorHelp

// generation is the command generate.
func generation(f *flag.FlagSet, show *progress.Progress) func(map[string]bool) (millrace.Runner, error) {
	var u usage
	u.generatorFlags(f)
	return func(given map[string]bool) (millrace.Runner, error) {
		return task(func(ctx context.Context) error {
			err := records.WriteCSV(show.Stdout(), func(yield func(records.Record) bool) {
				for r := range u.generate(show) {
					if ctx.Err() != nil || !yield(r) {
						return
					}
				}
			})
			if err := errors.Join(err, ctx.Err()); err != nil {
				return fmt.Errorf("write records: %w", err)
			}
			return nil
		}), u.check(given)
	}
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/progress"
)

const generateHelp = `Usage: billing generate [flags]

Writes usage records that look real. Their tariffs are those in records/tariffs.csv.

Flags:

` + generatorHelp + `  -out FILE          the usage file (default: standard output)
`

// generation is the command generate.
func generation(f *flag.FlagSet, show *progress.Progress) func(map[string]bool) (millrace.Runner, error) {
	var u usage
	u.generatorFlags(f)
	out := f.String("out", "", "")
	return func(given map[string]bool) (millrace.Runner, error) {
		return task(func(ctx context.Context) error {
			var untilStopped iter.Seq[records.Record] = func(yield func(records.Record) bool) {
				for r := range u.generate(show) {
					if ctx.Err() != nil || !yield(r) {
						return
					}
				}
			}
			if *out == "" {
				if err := errors.Join(records.WriteCSV(show.Stdout(), untilStopped), ctx.Err()); err != nil {
					return fmt.Errorf("write records: %w", err)
				}
				return nil
			}
			if err := writeFile(ctx, *out, func(w io.Writer) error { return records.WriteCSV(w, untilStopped) }); err != nil {
				return err
			}
			show.Say("%s records are in %s", cli.Grouped(int64(u.records)), *out)
			return nil
		}), u.check(given)
	}
}

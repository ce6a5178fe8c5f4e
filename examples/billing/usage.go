package main

import (
	"flag"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/internal/cli"
)

// usage is where records come from: files, or the generator.
type usage struct {
	files         []string
	records, days int
	seed          uint64
	group         int // lines of a piece
}

const (
	usageHelp = `  -in FILE           a usage file, CSV with the columns id, time, account, tariff and quantity; repeatable
                     (default: records are generated)
` + generatorHelp
	generatorHelp = `  -records N         how many are generated (default 300000)
  -days N            over how many days, from 2026-11-01 on; each day is a file (default 30)
  -seed N            the same seed gives the same records (default 1)
  -group N           records of a piece, which is a work item: 1 to 5000 (default 1000)
`
)

func (u *usage) flags(f *flag.FlagSet) {
	f.Func("in", "", func(path string) error {
		u.files = append(u.files, path)
		return nil
	})
	u.generatorFlags(f)
}

func (u *usage) generatorFlags(f *flag.FlagSet) {
	f.IntVar(&u.records, "records", 300_000, "")
	f.IntVar(&u.days, "days", 30, "")
	f.Uint64Var(&u.seed, "seed", 1, "")
	f.IntVar(&u.group, "group", 1000, "")
}

// check refuses flags that do not go together, and files that cannot be read.
func (u *usage) check(given map[string]bool) error {
	for _, name := range []string{"records", "days", "seed"} {
		if len(u.files) > 0 && given[name] {
			return cli.UsageErrorf("-%s is for generated records: omit it, or -in", name)
		}
	}
	for name, n := range map[string][2]int{"records": {u.records, 1e9}, "days": {u.days, 3660}, "group": {u.group, maxGroup}} {
		if n[0] < 1 || n[0] > n[1] {
			return cli.UsageErrorf("-%s %d is outside 1…%d", name, n[0], n[1])
		}
	}
	for _, path := range u.files {
		info, err := os.Stat(path)
		if err != nil {
			return cli.UsageErrorf("-in: %w", err)
		}
		if info.IsDir() {
			return cli.UsageErrorf("-in %s is a folder", path)
		}
	}
	return nil
}

// sources returns the usage files, or a source for each day that is generated.
func (u *usage) sources() iter.Seq[source] {
	return func(yield func(source) bool) {
		for _, path := range u.files {
			if !yield(source{filepath.Base(path), read(path)}) {
				return
			}
		}
		if len(u.files) > 0 {
			return
		}
		next, stop := iter.Pull(records.Generate(u.seed, u.records, u.days))
		defer stop()
		r, more := next()
		for more {
			day := r.Time.Format(time.DateOnly)
			ofDay := func(yield func(records.Record, error) bool) {
				for more && r.Time.Format(time.DateOnly) == day {
					if !yield(r, nil) {
						return
					}
					r, more = next()
				}
			}
			if !yield(source{"generated-" + day + ".csv", ofDay}) {
				return
			}
		}
	}
}

func read(path string) iter.Seq2[records.Record, error] {
	return func(yield func(records.Record, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(records.Record{}, err)
			return
		}
		defer func() { _ = f.Close() }() // nothing was written
		records.Read(f, filepath.Base(path))(yield)
	}
}

// from says where the records come from.
func (u *usage) from() string {
	if len(u.files) == 0 {
		return fmt.Sprintf("generating %s records of %s", cli.Grouped(int64(u.records)), cli.Plural(u.days, "day"))
	}
	return "usage from " + strings.Join(u.files, ", ")
}

const tariffsHelp = `  -tariffs FILE      the tariffs, CSV with the columns tariff, unit, currency and price
                     (default: those that generated records use)
`

// readTariffs returns the tariffs of a file, or the built-in ones. It says which lines of the file do not count.
func readTariffs(path string, say func(format string, args ...any)) (records.Tariffs, error) {
	if path == "" {
		return records.BuiltInTariffs(), nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the tariffs: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	tariffs, rejected, err := records.ReadTariffs(f, filepath.Base(path))
	for _, r := range rejected {
		say("rejected: %v", &r)
	}
	return tariffs, err
}

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/shipping"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/progress"
)

// Defaults of usage.
const (
	defaultRecords = 300_000
	defaultDays    = 30
	defaultSeed    = 1
)

// Limits of usage.
const (
	maxRecords = 1_000_000_000
	maxDays    = 3660
)

// generatedFile names generated records in messages.
const generatedFile = "generated.csv"

// usage is where records come from: files, or the generator.
type usage struct {
	files         files
	records, days int
	seed          uint64
}

const usageHelp = `  -in FILE           a usage file, CSV with the columns id, time, account, tariff and quantity; repeatable
                     (default: records are generated)
  -records N         how many are generated (default 300000)
  -days N            over how many days, from 2026-11-01 on; each day is a batch (default 30)
  -seed N            of the generator: the same seed gives the same records (default 1)
`

// files is a flag that may be given several times.
type files []string

// String implements flag.Value.
func (f *files) String() string { return strings.Join(*f, ", ") }

// Set implements flag.Value.
func (f *files) Set(text string) error {
	if strings.TrimSpace(text) == "" {
		return errors.New("it must not be empty")
	}
	*f = append(*f, text)
	return nil
}

// flags defines the flags.
func (u *usage) flags(f *flag.FlagSet) {
	f.Var(&u.files, "in", "")
	u.generatorFlags(f)
}

// generatorFlags defines the flags of the generator.
func (u *usage) generatorFlags(f *flag.FlagSet) {
	f.IntVar(&u.records, "records", defaultRecords, "")
	f.IntVar(&u.days, "days", defaultDays, "")
	f.Uint64Var(&u.seed, "seed", defaultSeed, "")
}

// check refuses flags that do not go together, and files that cannot be read.
func (u *usage) check(given map[string]bool) error {
	if len(u.files) > 0 {
		for _, name := range []string{"records", "days", "seed"} {
			if given[name] {
				return cli.UsageErrorf("-%s is for generated records: omit it, or -in", name)
			}
		}
	}
	if u.records < 1 || u.records > maxRecords {
		return cli.UsageErrorf("-records %d is outside 1…%d", u.records, maxRecords)
	}
	if u.days < 1 || u.days > maxDays {
		return cli.UsageErrorf("-days %d is outside 1…%d", u.days, maxDays)
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

// sources returns the usage files, and shows how far they are read.
func (u *usage) sources(show *progress.Progress) iter.Seq[shipping.Source] {
	return func(yield func(shipping.Source) bool) {
		if len(u.files) == 0 {
			yield(shipping.Source{File: generatedFile, Lines: u.generated(show)})
			return
		}
		for _, path := range u.files {
			if !yield(shipping.Source{File: filepath.Base(path), Lines: read(path, show)}) {
				return
			}
		}
	}
}

// showEvery is after how many records progress is shown.
const showEvery = 1000

// generated returns the records of the generator as those of a file.
func (u *usage) generated(show *progress.Progress) iter.Seq2[records.Record, error] {
	return func(yield func(records.Record, error) bool) {
		for r := range u.generate(show) {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// generate generates the records, and shows how far it is.
func (u *usage) generate(show *progress.Progress) iter.Seq[records.Record] {
	return func(yield func(records.Record) bool) {
		n := 0
		for r := range records.Generate(u.seed, u.records, u.days) {
			if !yield(r) {
				return
			}
			if n++; n%showEvery == 0 || n == u.records {
				show.Bar("generating records", n, u.records)
			}
		}
	}
}

// read reads the records of a file.
func read(path string, show *progress.Progress) iter.Seq2[records.Record, error] {
	return func(yield func(records.Record, error) bool) {
		name := filepath.Base(path)
		f, err := os.Open(path)
		if err != nil {
			yield(records.Record{}, err)
			return
		}
		defer func() { _ = f.Close() }() // nothing was written
		size := int64(0)
		if info, err := f.Stat(); err == nil {
			size = info.Size()
		}
		counted := &countingReader{reader: f}
		n := 0
		for r, err := range records.Read(counted, name) {
			if !yield(r, err) {
				return
			}
			if n++; n%showEvery == 0 && counted.bytes < size {
				show.Bar("reading "+name, int(counted.bytes), int(size))
			}
		}
		if size > 0 {
			show.Bar("reading "+name, int(size), int(size))
		}
	}
}

// countingReader counts what is read.
type countingReader struct {
	reader io.Reader
	bytes  int64
}

// Read implements io.Reader.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.reader.Read(p)
	c.bytes += int64(n)
	return n, err
}

// from says where the records come from.
func (u *usage) from() string {
	if len(u.files) == 0 {
		return fmt.Sprintf("%s records are generated, for %s", cli.Grouped(int64(u.records)), cli.Plural(u.days, "day"))
	}
	return "usage from " + u.files.String()
}

// tariffsFlag names a file of tariffs.
type tariffsFlag struct{ file string }

const tariffsHelp = `  -tariffs FILE      the tariffs, CSV with the columns tariff, unit, currency and price
                     (default: those that generated records use)
`

// read returns the tariffs of the file, or the built-in ones. It says which lines of the file do not count.
func (t *tariffsFlag) read(say func(format string, args ...any)) (*records.Tariffs, error) {
	if t.file == "" {
		return records.BuiltInTariffs(), nil
	}
	f, err := os.Open(t.file)
	if err != nil {
		return nil, fmt.Errorf("read the tariffs: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	tariffs, rejected, err := records.ReadTariffs(f, filepath.Base(t.file))
	if err != nil {
		return nil, fmt.Errorf("read the tariffs: %w", err)
	}
	for _, r := range rejected {
		say("%v", &r)
	}
	return tariffs, nil
}

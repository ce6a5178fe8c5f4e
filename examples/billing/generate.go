package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/progress"
)

const generateHelp = `Usage: billing generate [flags]

Writes usage records that look real, and the tariffs that price them.

Flags:

  -records N         how many (default 300000)
  -days N            over how many days, from 2026-11-01 on (default 30)
  -seed N            the same seed gives the same records (default 1)
  -out FILE          the usage file (default: standard output)
  -tariffs FILE      also write the tariffs, to this file
`

// generation is the command generate. It is a [millrace.Runner].
type generation struct {
	usage
	out, tariffs string
	show         *progress.Progress
}

func generateCommand() cli.Command {
	return cli.Command{Name: "generate", Does: "write a usage file to try things with", Help: generateHelp,
		Run: func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
			g := &generation{show: progress.New(stdout, stderr)}
			defer g.show.Close()
			f := cli.NewFlags("billing generate")
			g.generatorFlags(f)
			f.StringVar(&g.out, "out", "", "")
			f.StringVar(&g.tariffs, "tariffs", "", "")
			given, err := cli.ParseFlags(f, args, "out", "tariffs")
			if err != nil {
				return err
			}
			if err := g.check(given); err != nil {
				return err
			}
			return millrace.Run(ctx, g)
		}}
}

// Halt does nothing: Run returns soon after its context ends.
func (*generation) Halt() {}

// Run writes the files.
func (g *generation) Run(ctx context.Context) error {
	if g.tariffs != "" {
		if err := replaceFile(ctx, g.tariffs, records.BuiltInTariffs().WriteCSV); err != nil {
			return err
		}
		g.show.Say("the tariffs are in %s", g.tariffs)
	}
	write := func(w io.Writer) error { return records.WriteCSV(w, g.all(ctx)) }
	if g.out == "" {
		if err := errors.Join(write(g.show.Stdout()), ctx.Err()); err != nil {
			return fmt.Errorf("write records: %w", err)
		}
		return nil
	}
	if err := replaceFile(ctx, g.out, write); err != nil {
		return err
	}
	g.show.Say("%s records are in %s", cli.Grouped(int64(g.records)), g.out)
	return nil
}

// all generates the records until ctx ends.
func (g *generation) all(ctx context.Context) iter.Seq[records.Record] {
	return func(yield func(records.Record) bool) {
		for r := range g.generate(g.show) {
			if ctx.Err() != nil || !yield(r) {
				return
			}
		}
	}
}

// replaceFile writes a file whole or not at all.
func replaceFile(ctx context.Context, path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.partial")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // the first error is the cause
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	buffered := bufio.NewWriter(f)
	err = write(buffered)
	if err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = f.Chmod(0o644)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}

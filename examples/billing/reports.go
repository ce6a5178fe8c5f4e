package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/report"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/progress"
)

const reportHelp = `Usage: billing report [flags]

Writes a report of what is in the books: CSV files, and a page with charts. It may run while others work.

Flags:

` + outHelp + booksHelp + `  -account LOCATION  whose books, if -books is not given (default: as for billing controller)
`

const outHelp = `  -out DIR           the folder of the report (default ` + defaultOut + `)
  -sla TIME          how long a batch may take from being handed over to being in the books (default 5m)
`

const booksHelp = `  -books ADDRESS     the database with the books: an SQLite file, or postgres://…
                     (default: a file for the account in your data directory)
`

const (
	defaultOut = "billing-report"
	defaultSLA = 5 * time.Minute
)

// reporting is the command report. It is a [millrace.Runner].
type reporting struct {
	account account.Flag
	books   string
	out     string
	sla     time.Duration
	show    *progress.Progress
}

func reportCommand() cli.Command {
	return cli.Command{Name: "report", Does: "write a report of what is in the books", Help: reportHelp,
		Run: func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
			r := &reporting{show: progress.New(stdout, stderr)}
			f := cli.NewFlags("billing report")
			f.StringVar(&r.account.Given, "account", "", "")
			f.StringVar(&r.books, "books", "", "")
			f.StringVar(&r.out, "out", defaultOut, "")
			f.DurationVar(&r.sla, "sla", defaultSLA, "")
			if _, err := cli.ParseFlags(f, args, "account", "books", "out"); err != nil {
				return err
			}
			if err := checkSLA(r.sla); err != nil {
				return err
			}
			return millrace.Run(ctx, r)
		}}
}

func checkSLA(sla time.Duration) error {
	if sla <= 0 {
		return cli.UsageErrorf("-sla %v must be positive", sla)
	}
	return nil
}

// Halt does nothing: Run returns soon after its context ends.
func (*reporting) Halt() {}

// Run writes the report and shows it in short.
func (r *reporting) Run(ctx context.Context) error {
	err := r.run(ctx)
	if ctx.Err() != nil {
		return errors.New("stopped before the report was finished")
	}
	return err
}

func (r *reporting) run(ctx context.Context) (err error) {
	var a *account.Account
	if r.books == "" {
		location, err := r.account.Location()
		if err != nil {
			return err
		}
		if a, err = account.Open(location, nil); err != nil { // names the books, and sends nothing
			return err
		}
		defer func() { err = errors.Join(err, a.Close()) }()
	}
	if err := r.exist(a); err != nil {
		return err
	}
	b, err := openBooks(ctx, r.books, a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	made, err := report.Write(ctx, b, r.out, &report.Options{SLA: r.sla})
	if err != nil {
		return err
	}
	printSummary(r.show.Stdout(), made, r.sla)
	return nil
}

// exist refuses a file that is not there: a report would make an empty one.
func (r *reporting) exist(a *account.Account) error {
	path, err := booksAddress(r.books, a)
	if err != nil || strings.HasPrefix(path, "postgres") {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("there are no books: %w; billing controller makes them, and -books names others", err)
	}
	return nil
}

// booksAddress returns the address of the books: the given one, or a file for the account.
func booksAddress(given string, a *account.Account) (string, error) {
	if given != "" {
		return given, nil
	}
	folder, err := program.FolderOf(a)
	if err != nil {
		return "", fmt.Errorf("there is no folder for the books: %w; name a database with -books", err)
	}
	return filepath.Join(filepath.Dir(filepath.Dir(folder)), "books", filepath.Base(folder)+".db"), nil
}

// openBooks opens the books at the given address, or those of the account.
func openBooks(ctx context.Context, given string, a *account.Account) (*books.Books, error) {
	address, err := booksAddress(given, a)
	if err != nil {
		return nil, err
	}
	if given == "" {
		if err := os.MkdirAll(filepath.Dir(address), 0o700); err != nil {
			return nil, fmt.Errorf("make the folder of the books: %w", err)
		}
	}
	return books.Open(ctx, address)
}

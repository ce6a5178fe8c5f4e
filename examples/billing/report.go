package main

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
)

const (
	outHelp = `  -out DIR           the folder of the report (default billing-report)
  -sla TIME          how long a batch may take from being handed over to being in the books (default 5m0s)
`
	booksHelp = `  -books ADDRESS     the books: the path of an SQLite file, or postgres://…
                     (default: a file for the account in your data directory)
`
	reportHelp = `Usage: billing report [flags]

Writes a report of everything in the books: totals.csv, batches.csv, rejections.csv, and a page, report.html.
Ship rejections.csv again after correcting its lines: it is a usage file.

Flags:

` + outHelp + booksHelp + `  -account LOCATION  names the account of the default books (default: as for the other commands)
`
)

func outFlags(f *flag.FlagSet, out *string, sla *time.Duration) {
	f.StringVar(out, "out", "billing-report", "")
	f.DurationVar(sla, "sla", 5*time.Minute, "")
}

func checkSLA(sla time.Duration) error {
	if sla <= 0 {
		return cli.UsageErrorf("-sla %v must be positive", sla)
	}
	return nil
}

func reporting(f *flag.FlagSet, show *cli.Show) func(map[string]bool) (millrace.Runner, error) {
	var at account.Flag
	var address, out string
	var sla time.Duration
	f.StringVar(&at.Given, "account", "", "")
	f.StringVar(&address, "books", "", "")
	outFlags(f, &out, &sla)
	write := func(ctx context.Context) (err error) {
		var a *account.Account
		if address == "" {
			location, err := at.Location()
			if err != nil {
				return err
			}
			if a, err = account.Open(location, nil); err != nil { // names the books, and sends nothing
				return err
			}
			defer func() { err = errors.Join(err, a.Close()) }()
		}
		if address, err = booksAddress(address, a); err != nil {
			return err
		}
		if _, err := os.Stat(address); err != nil && !strings.Contains(address, "://") {
			return fmt.Errorf("there are no books: %w; billing controller makes them, and -books names others", err)
		}
		b, err := books.Open(ctx, address)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		made, err := writeReport(ctx, b, out, sla)
		if err == nil {
			made.print(show.Stdout)
		}
		return err
	}
	return func(map[string]bool) (millrace.Runner, error) {
		return cli.Task(func(ctx context.Context) error {
			err := write(ctx)
			if ctx.Err() != nil {
				return errors.New("stopped before the report was finished")
			}
			return err
		}), checkSLA(sla)
	}
}

// booksAddress returns the given address, or the path of a file for the account.
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

// openBooks opens the books at the given address, or the books of the account.
func openBooks(ctx context.Context, given string, a *account.Account) (*books.Books, error) {
	address, err := booksAddress(given, a)
	if err == nil && given == "" {
		err = os.MkdirAll(filepath.Dir(address), 0o700)
	}
	if err != nil {
		return nil, err
	}
	return books.Open(ctx, address)
}

// report is the content of the page. Its memory does not grow with accounts, records or rejections.
type report struct {
	Path                            string // of the page
	Records, Billed, Rejected, Open int64  // Open are rejected and not billed since
	Batches                         []books.Batch
	Begun, Ended                    time.Time
	SLA, P50, P95, P99, Max         time.Duration
	Late                            int
	Currencies                      []currency
	Rejections                      []books.Rejection // the first that are open
	Made                            time.Time
	folder                          string
}

type currency struct {
	books.Total
	Tariffs []books.Total
}

const (
	shownOnPage    = 12 // rejections
	shownOfBatches = 366
)

// writeReport writes the files of a report into a folder, which it makes if it is missing. All of them show one moment
// of the books. Each replaces the file of an earlier report when it is complete, the page last.
func writeReport(ctx context.Context, b *books.Books, folder string, sla time.Duration) (*report, error) {
	r := &report{Path: filepath.Join(folder, "report.html"), SLA: sla, Made: time.Now(), folder: folder}
	err := os.MkdirAll(folder, 0o755)
	if err == nil {
		err = b.Read(ctx, func(s *books.Snapshot) error {
			for _, file := range []func(context.Context, *books.Snapshot) error{r.batches, r.totals, r.rejections} {
				if err := file(ctx, s); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err == nil {
		err = writeFile(ctx, r.Path, func(w io.Writer) error { return page.Execute(w, r) })
	}
	if err != nil {
		return nil, fmt.Errorf("write the report in %s: %w", folder, err)
	}
	return r, nil
}

// table writes a CSV file in the folder of a report.
func table[T any](ctx context.Context, r *report, name, columns string, all iter.Seq2[T, error], cells func(T) []string) error {
	return writeFile(ctx, filepath.Join(r.folder, name), func(w io.Writer) error {
		table := csv.NewWriter(w)
		err := table.Write(strings.Split(columns, ","))
		for one, failed := range all {
			if err = cmp.Or(err, failed); err != nil {
				break
			}
			row := cells(one)
			for n := range row {
				if records.Formula(row[n]) {
					row[n] = "'" + row[n] // or a spreadsheet computes it
				}
			}
			err = table.Write(row)
		}
		table.Flush()
		return errors.Join(err, table.Error())
	})
}

func (r *report) batches(ctx context.Context, s *books.Snapshot) error {
	const columns = "batch,file,records,billed,rejected,items,handed_over,reported,latency_seconds"
	err := table(ctx, r, "batches.csv", columns, s.Batches(ctx), func(b books.Batch) []string {
		r.Records, r.Billed, r.Rejected = r.Records+b.Records, r.Billed+b.Billed(), r.Rejected+b.Rejected
		if r.Begun.IsZero() || b.HandedOver.Before(r.Begun) {
			r.Begun = b.HandedOver
		}
		if b.Reported.After(r.Ended) {
			r.Ended = b.Reported
		}
		if b.Latency() > r.SLA {
			r.Late++
		}
		r.Batches = append(r.Batches, b)
		return []string{b.Name, b.File, number(b.Records), number(b.Billed()), number(b.Rejected), number(b.Items),
			b.HandedOver.Format(time.RFC3339Nano), b.Reported.Format(time.RFC3339Nano), strconv.FormatFloat(b.Latency().Seconds(), 'f', 6, 64)}
	})
	if err != nil || len(r.Batches) == 0 {
		return err
	}
	slices.SortFunc(r.Batches, func(a, b books.Batch) int { return cmp.Compare(a.Latency(), b.Latency()) })
	rank := func(p int) time.Duration { return r.Batches[(p*len(r.Batches)+99)/100-1].Latency() }
	r.P50, r.P95, r.P99, r.Max = rank(50), rank(95), rank(99), rank(100)
	slices.SortStableFunc(r.Batches, func(a, b books.Batch) int {
		return cmp.Or(a.HandedOver.Compare(b.HandedOver), cmp.Compare(a.Name, b.Name))
	})
	return nil
}

func (r *report) totals(ctx context.Context, s *books.Snapshot) error {
	currencies, tariffs := make(map[string]books.Sum), make(map[books.Key]books.Sum)
	err := table(ctx, r, "totals.csv", "account,tariff,currency,records,quantity,amount", s.Totals(ctx), func(t books.Total) []string {
		tariff := books.Key{Tariff: t.Tariff, Currency: t.Currency}
		currencies[t.Currency], tariffs[tariff] = currencies[t.Currency].Plus(t.Sum), tariffs[tariff].Plus(t.Sum)
		return []string{t.Account, t.Tariff, t.Currency, number(t.Records), t.Quantity.String(), records.FormatAmount(t.Currency, t.Amount)}
	})
	for _, code := range slices.Sorted(maps.Keys(currencies)) {
		c := currency{Total: books.Total{Key: books.Key{Currency: code}, Sum: currencies[code]}}
		for key, sum := range tariffs {
			if key.Currency == code {
				c.Tariffs = append(c.Tariffs, books.Total{Key: key, Sum: sum})
			}
		}
		slices.SortFunc(c.Tariffs, func(a, b books.Total) int { return cmp.Or(b.Amount.Cmp(a.Amount), cmp.Compare(a.Tariff, b.Tariff)) })
		r.Currencies = append(r.Currencies, c)
	}
	return err
}

// rejections writes every rejected line as a line of a usage file, so that it can be corrected and shipped again.
func (r *report) rejections(ctx context.Context, s *books.Snapshot) error {
	columns := strings.Join(records.Columns, ",") + ",reason,batch,file,line,billed_in,text"
	return table(ctx, r, "rejections.csv", columns, s.Rejections(ctx), func(one books.Rejection) []string {
		values, split := one.SplitText()
		text := ""
		if !split {
			values, text = []string{one.ID, "", "", "", ""}, one.Text
		}
		if one.BilledIn == "" {
			if r.Open++; len(r.Rejections) < shownOnPage {
				r.Rejections = append(r.Rejections, one)
			}
		}
		return append(values, one.Reason, one.Batch, one.File, strconv.Itoa(one.Line), one.BilledIn, text)
	})
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// line shows a fact.
func line(w io.Writer, what, format string, args ...any) {
	cli.Say(w, "  %-22s"+format+"\n", append([]any{what}, args...)...)
}

// print shows the report in short.
func (r *report) print(w io.Writer) {
	path, err := filepath.Abs(r.Path)
	if err != nil {
		path = r.Path
	}
	cli.Say(w, "The report is in %s, its tables beside it\n", path)
	line(w, "batches", "%d with %s records: %s are billed, %s rejected", len(r.Batches), cli.Grouped(r.Records), cli.Grouped(r.Billed), cli.Grouped(r.Rejected))
	for i := range r.Rejections {
		line(w, "rejected", "%v", &r.Rejections[i].Rejection)
	}
	if more := r.Open - int64(len(r.Rejections)); more > 0 {
		line(w, "rejected", "%s more in rejections.csv", cli.Plural(int(more), "line"))
	}
	if billed := r.Rejected - r.Open; billed > 0 {
		line(w, "rejected", "%s of an id that is billed, in rejections.csv", cli.Plural(int(billed), "line"))
	}
	for _, c := range r.Currencies {
		line(w, "billed in "+c.Currency, "%s, for %s", records.FormatAmount(c.Currency, c.Amount), cli.Plural(int(c.Records), "record"))
	}
	if len(r.Batches) > 0 {
		within := "all within"
		if r.Late > 0 {
			within = cli.Plural(r.Late, "batch") + " longer than"
		}
		line(w, "latency of a batch", "half at most %.2f s, 95 %% %.2f s, 99 %% %.2f s, all %.2f s; %s the %v of the SLA",
			r.P50.Seconds(), r.P95.Seconds(), r.P99.Seconds(), r.Max.Seconds(), within, r.SLA)
	}
	if took := r.Ended.Sub(r.Begun).Seconds(); took > 0 {
		rate := float64(r.Records) / took
		line(w, "rate", "%s records a second, %s million a day", cli.Grouped(int64(rate)), cli.Grouped(int64(rate*86400/1e6)))
	}
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("report.html").Funcs(template.FuncMap{
	"count":   cli.Grouped,
	"plural":  cli.Plural,
	"seconds": func(d time.Duration) string { return fmt.Sprintf("%.2f\u00a0s", d.Seconds()) },
	"moment":  func(t time.Time) string { return t.UTC().Format("2 January 2006, 15:04:05 UTC") },
	"amount":  func(t books.Total) string { return cli.GroupedText(records.FormatAmount(t.Currency, t.Amount)) },
	"share": func(part, whole decimal.Decimal) string {
		if !whole.IsPositive() {
			return "0"
		}
		return strconv.FormatFloat(100*part.InexactFloat64()/whole.InexactFloat64(), 'f', 2, 64)
	},
	"first": func(all []books.Batch) []books.Batch { return all[:min(len(all), shownOfBatches)] },
	"late":  func(b books.Batch, sla time.Duration) bool { return b.Latency() > sla },
}).Parse(pageText))

// writeFile writes a file whole or not at all.
func writeFile(ctx context.Context, path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.partial")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
			_ = os.Remove(f.Name()) // the first error is the cause
		}
	}()
	buffered := bufio.NewWriter(f)
	err = write(buffered)
	for _, step := range []func() error{buffered.Flush, ctx.Err, func() error { return f.Chmod(0o644) }, f.Sync} {
		if err == nil {
			err = step()
		}
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}

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
	"github.com/millrace/millrace/examples/internal/progress"
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

// reporting is the command report.
func reporting(f *flag.FlagSet, show *progress.Progress) func(map[string]bool) (millrace.Runner, error) {
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
			made.print(show.Stdout())
		}
		return err
	}
	return func(map[string]bool) (millrace.Runner, error) {
		return task(func(ctx context.Context) error {
			err := write(ctx)
			if ctx.Err() != nil {
				return errors.New("stopped before the report was finished")
			}
			return err
		}), checkSLA(sla)
	}
}

// booksAddress returns the given address, or that of a file for the account.
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
	if err == nil && given == "" {
		err = os.MkdirAll(filepath.Dir(address), 0o700)
	}
	if err != nil {
		return nil, err
	}
	return books.Open(ctx, address)
}

// report is what the page shows. Its memory does not grow with accounts, records or rejections.
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

// currency is what was billed in a currency.
type currency struct {
	books.Total
	Tariffs []books.Total
}

const (
	shownOnPage    = 12 // rejections
	shownOfBatches = 366
)

// writeReport writes the files of a report into a folder, which it makes if it is missing. All of them show one moment
// of the books. Each replaces that of an earlier report when it is complete, the page last.
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

// table writes a CSV file.
func (r *report) table(ctx context.Context, name string, columns []string, fill func(row func(...string) error) error) error {
	return writeFile(ctx, filepath.Join(r.folder, name), func(w io.Writer) error {
		table := csv.NewWriter(w)
		err := table.Write(columns)
		if err == nil {
			err = fill(func(cells ...string) error { return table.Write(cells) })
		}
		table.Flush()
		return errors.Join(err, table.Error())
	})
}

func (r *report) batches(ctx context.Context, s *books.Snapshot) error {
	columns := []string{"batch", "file", "records", "billed", "rejected", "items", "handed_over", "reported", "latency_seconds"}
	err := r.table(ctx, "batches.csv", columns, func(row func(...string) error) error {
		for b, err := range s.Batches(ctx) {
			if err == nil {
				err = row(b.Name, guarded(b.File), number(b.Records), number(b.Billed()), number(b.Rejected), number(b.Items),
					b.HandedOver.Format(time.RFC3339Nano), b.Reported.Format(time.RFC3339Nano), strconv.FormatFloat(b.Latency().Seconds(), 'f', 6, 64))
			}
			if err != nil {
				return err
			}
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
		}
		return nil
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
	err := r.table(ctx, "totals.csv", []string{"account", "tariff", "currency", "records", "quantity", "amount"}, func(row func(...string) error) error {
		for t, err := range s.Totals(ctx) {
			if err == nil {
				err = row(guarded(t.Account), guarded(t.Tariff), t.Currency, number(t.Records), t.Quantity.String(), records.FormatAmount(t.Currency, t.Amount))
			}
			if err != nil {
				return err
			}
			currencies[t.Currency] = currencies[t.Currency].Plus(t.Sum)
			tariff := books.Key{Tariff: t.Tariff, Currency: t.Currency}
			tariffs[tariff] = tariffs[tariff].Plus(t.Sum)
		}
		return nil
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
	columns := slices.Concat(records.Columns, []string{"reason", "batch", "file", "line", "billed_in", "text"})
	return r.table(ctx, "rejections.csv", columns, func(row func(...string) error) error {
		for one, err := range s.Rejections(ctx) {
			if err != nil {
				return err
			}
			values, split := one.SplitText()
			if !split {
				values = []string{one.ID, "", "", "", ""}
			} else {
				one.Text = ""
			}
			cells := slices.Concat(values, []string{one.Reason, one.Batch, one.File, strconv.Itoa(one.Line), one.BilledIn, one.Text})
			for n := range cells {
				if n >= len(records.Columns) {
					cells[n] = guarded(cells[n])
				} else if records.Formula(cells[n]) {
					cells[n] = "'" + cells[n] // and not inside: the file is shipped again
				}
			}
			if err := row(cells...); err != nil {
				return err
			}
			if one.BilledIn != "" {
				continue
			}
			if r.Open++; len(r.Rejections) < shownOnPage {
				r.Rejections = append(r.Rejections, one)
			}
		}
		return nil
	})
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// guarded puts ' before a text that a spreadsheet could take for a formula: one that begins with =, +, - or @, or has
// one of these where some spreadsheets begin a new cell.
func guarded(text string) string {
	var b strings.Builder
	begins := true
	for _, r := range text {
		if begins && records.Formula(string(r)) {
			b.WriteByte('\'')
		}
		begins = strings.ContainsRune(",;\t|\r\n", r) || begins && strings.ContainsRune(" \"'\u00a0\u3000", r)
		b.WriteRune(r)
	}
	return b.String()
}

// rate returns how many records a second came into the books, or 0 if there was no time.
func (r *report) rate() float64 {
	if took := r.Ended.Sub(r.Begun).Seconds(); took > 0 {
		return float64(r.Records) / took
	}
	return 0
}

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
	if rate := r.rate(); rate > 0 {
		line(w, "rate", "%s records a second, %s million a day", cli.Grouped(int64(rate)), cli.Grouped(int64(rate*86400/1e6)))
	}
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("report.html").Funcs(template.FuncMap{
	"count":   func(n int64) string { return cli.Grouped(n) },
	"plural":  cli.Plural,
	"seconds": func(d time.Duration) string { return fmt.Sprintf("%.2f\u00a0s", d.Seconds()) },
	"moment":  func(t time.Time) string { return t.UTC().Format("2 January 2006, 15:04:05 UTC") },
	"amount":  func(t books.Total) string { return grouped(records.FormatAmount(t.Currency, t.Amount)) },
	"share": func(part, whole decimal.Decimal) string {
		if !whole.IsPositive() {
			return "0"
		}
		return strconv.FormatFloat(100*part.InexactFloat64()/whole.InexactFloat64(), 'f', 2, 64)
	},
	"first": func(all []books.Batch) []books.Batch { return all[:min(len(all), shownOfBatches)] },
	"late":  func(b books.Batch, sla time.Duration) bool { return b.Latency() > sla },
}).Parse(pageText))

// grouped puts a comma after each three digits of a number before its point.
func grouped(number string) string {
	whole, fraction, point := strings.Cut(number, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if point {
		whole += "." + fraction
	}
	return whole
}

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

package report

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/examples/billing/books"
)

// The names of the files of a report.
const (
	Page       = "report.html"
	Totals     = "totals.csv"
	Accounts   = "accounts.csv"
	Tariffs    = "tariffs.csv"
	Batches    = "batches.csv"
	Rejections = "rejections.csv"
)

// Options are what the books do not know. Nil means the defaults.
type Options struct {
	// SLA is the longest that a batch may take from being handed over to being in the books.
	// Defaults to none.
	SLA time.Duration

	// Requests are those of the run. Defaults to unknown, and the report has no costs.
	Requests *Requests

	// Made is when the report is made. Defaults to now.
	Made time.Time
}

// Summary is what a report says in short.
type Summary struct {
	Path                               string // of the page
	Batches, Records, Billed, Rejected int64

	// Begun is when the first batch was handed over, Ended when the last came into the books.
	Begun, Ended time.Time

	Latencies Latencies

	// Late is how many batches took longer than the SLA.
	Late int64

	// Currencies are the sums by currency, with their largest parts.
	Currencies []Currency

	// Money is nil if the requests are unknown.
	Money *Money
}

// Currency is what was billed in a currency.
type Currency struct {
	books.Total
	Tariffs, Accounts Largest
}

// Rate returns how many records a second came into the books from beginning to end, or 0 if
// there was no time.
func (s *Summary) Rate() float64 {
	took := s.Ended.Sub(s.Begun).Seconds()
	if took <= 0 {
		return 0
	}
	return float64(s.Records) / took
}

// Write writes a report into a folder, which it makes if it is missing. All files are of one
// moment of the books. They replace those of an earlier report when all are complete; if Write
// fails before, the earlier ones stay. Memory does not grow with accounts, records or rejections.
func Write(ctx context.Context, b *books.Books, folder string, o *Options) (*Summary, error) {
	if o == nil {
		o = &Options{}
	}
	w := &writer{ctx: ctx, folder: folder, made: o.Made, sla: o.SLA}
	if w.made.IsZero() {
		w.made = time.Now()
	}
	defer w.drop()
	err := os.MkdirAll(folder, 0o755)
	if err == nil {
		err = b.Read(ctx, w.read)
	}
	if err == nil {
		if o.Requests != nil {
			w.Money = o.Requests.money(w.Records)
		}
		w.Path = filepath.Join(folder, Page)
		err = w.page()
	}
	if err == nil {
		err = w.publish()
	}
	if err != nil {
		return nil, fmt.Errorf("making the billing report in %s: %w", folder, err)
	}
	return &w.Summary, nil
}

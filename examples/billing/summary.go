package main

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/report"
	"github.com/millrace/millrace/examples/internal/cli"
)

// printSummary shows a report in short.
func printSummary(w io.Writer, s *report.Summary, sla time.Duration) {
	path, err := filepath.Abs(s.Path)
	if err != nil {
		path = s.Path
	}
	line := func(what, format string, args ...any) {
		cli.Say(w, "  %-22s"+format+"\n", append([]any{what}, args...)...)
	}
	cli.Say(w, "The report is in %s, its tables beside it\n", path)
	line("batches", "%s with %s records: %s are billed, %s rejected", cli.Grouped(s.Batches), cli.Grouped(s.Records), cli.Grouped(s.Billed), cli.Grouped(s.Rejected))
	for _, c := range s.Currencies {
		line("billed in "+c.Currency, "%s, for %s", records.FormatAmount(c.Currency, c.Amount), cli.Plural(int(c.Records), "record"))
	}
	if s.Batches > 0 {
		l := s.Latencies
		within := "all within"
		if s.Late > 0 {
			within = cli.Grouped(s.Late) + " longer than"
		}
		line("latency of a batch", "half at most %s, 95 %% %s, 99 %% %s, all %s; %s the %v of the SLA", seconds(l.P50), seconds(l.P95), seconds(l.P99), seconds(l.Max), within, sla)
	}
	if rate := s.Rate(); rate > 0 {
		line("rate", "%s records a second, %s million a day", cli.Grouped(int64(rate)), cli.Grouped(int64(rate*86400/1e6)))
	}
	if m := s.Money; m != nil {
		line("storage requests", "%s to queues, %s to blobs: $%.4f", cli.Grouped(m.Queue), cli.Grouped(m.Blobs), m.Cost)
		line("one message a record", "%s requests: $%.4f, %.0f times as much", cli.Grouped(m.Naive), m.NaiveCost, m.Times())
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

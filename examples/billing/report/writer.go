package report

import (
	"context"
	"iter"
	"strconv"
	"time"

	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
)

const (
	keptTariffs    = 12
	keptAccounts   = 10
	keptRejections = 12
)

// writer writes one report.
type writer struct {
	Summary
	ctx    context.Context
	folder string
	made   time.Time
	sla    time.Duration
	files  []*file // that are not published

	batches    []batch
	rejections []books.Rejection // the first of them
}

// batch is what the charts need of a batch.
type batch struct {
	name                 string
	records, rejected    int64
	handedOver, reported time.Time
	latency              time.Duration
}

// read reads the books once for each file.
func (w *writer) read(s *books.Snapshot) error {
	for _, one := range []func(*books.Snapshot) error{w.readBatches, w.readCurrencies, w.readTariffs, w.readAccounts, w.readTotals, w.readRejections} {
		if err := one(s); err != nil {
			return err
		}
	}
	return nil
}

// write writes a CSV file of what is read.
func write[R any](w *writer, name string, all iter.Seq2[R, error], columns []string, cells func(R) []string) error {
	s, err := newSheet(w.folder, name, columns...)
	if s != nil {
		w.files = append(w.files, s.file)
	}
	if err != nil {
		return err
	}
	for one, err := range all {
		if err != nil {
			return err
		}
		if err := s.row(cells(one)...); err != nil {
			return err
		}
	}
	return s.done()
}

func (w *writer) readBatches(s *books.Snapshot) error {
	columns := []string{"batch", "file", "records", "billed", "rejected", "items", "handed_over", "reported", "latency_seconds"}
	var all []time.Duration
	err := write(w, Batches, s.Batches(w.ctx), columns, func(b books.Batch) []string {
		w.Batches++
		w.Records += b.Records
		w.Rejected += b.Rejected
		w.Billed += b.Billed()
		latency := b.Latency()
		all = append(all, latency)
		if w.sla > 0 && latency > w.sla {
			w.Late++
		}
		if w.Begun.IsZero() || b.HandedOver.Before(w.Begun) {
			w.Begun = b.HandedOver
		}
		if b.Reported.After(w.Ended) {
			w.Ended = b.Reported
		}
		w.batches = append(w.batches, batch{b.Name, b.Records, b.Rejected, b.HandedOver, b.Reported, latency})
		return []string{
			guarded(b.Name), guarded(b.File), number(b.Records), number(b.Billed()), number(b.Rejected), number(b.Items),
			b.HandedOver.Format(time.RFC3339Nano), b.Reported.Format(time.RFC3339Nano), strconv.FormatFloat(latency.Seconds(), 'f', 6, 64),
		}
	})
	w.Latencies = latencies(all)
	return err
}

func (w *writer) readCurrencies(s *books.Snapshot) error {
	for t, err := range s.Currencies(w.ctx) {
		if err != nil {
			return err
		}
		w.Currencies = append(w.Currencies, Currency{Total: t})
	}
	return nil
}

// currency returns where the parts of a currency are kept.
func (w *writer) currency(code string) *Currency {
	for n := range w.Currencies {
		if w.Currencies[n].Currency == code {
			return &w.Currencies[n]
		}
	}
	panic("report: a snapshot has a sum in " + code + " but none of the currency")
}

func (w *writer) readTariffs(s *books.Snapshot) error {
	return write(w, Tariffs, s.Tariffs(w.ctx), []string{"tariff", "currency", "records", "quantity", "amount"}, func(t books.Total) []string {
		w.currency(t.Currency).Tariffs.add(t, keptTariffs)
		return []string{guarded(t.Tariff), guarded(t.Currency), number(t.Records), t.Quantity.String(), amount(t)}
	})
}

func (w *writer) readAccounts(s *books.Snapshot) error {
	return write(w, Accounts, s.Accounts(w.ctx), []string{"account", "currency", "records", "amount"}, func(t books.Total) []string {
		w.currency(t.Currency).Accounts.add(t, keptAccounts)
		return []string{guarded(t.Account), guarded(t.Currency), number(t.Records), amount(t)}
	})
}

func (w *writer) readTotals(s *books.Snapshot) error {
	return write(w, Totals, s.Totals(w.ctx), []string{"account", "tariff", "currency", "records", "quantity", "amount"}, func(t books.Total) []string {
		return []string{guarded(t.Account), guarded(t.Tariff), guarded(t.Currency), number(t.Records), t.Quantity.String(), amount(t)}
	})
}

func (w *writer) readRejections(s *books.Snapshot) error {
	return write(w, Rejections, s.Rejections(w.ctx), []string{"batch", "file", "line", "id", "reason"}, func(r books.Rejection) []string {
		if len(w.rejections) < keptRejections {
			w.rejections = append(w.rejections, r)
		}
		return []string{guarded(r.Batch), guarded(r.Line.File), strconv.Itoa(r.Line.Line), guarded(r.Line.ID), guarded(r.Line.Reason)}
	})
}

// publish gives all files their names, the page last.
func (w *writer) publish() error {
	for len(w.files) > 0 {
		if err := w.files[0].publish(); err != nil {
			return err
		}
		w.files = w.files[1:]
	}
	return nil
}

// drop removes what was not published.
func (w *writer) drop() {
	for _, f := range w.files {
		f.drop()
	}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func amount(t books.Total) string { return records.FormatAmount(t.Currency, t.Amount) }

package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"slices"
	"time"

	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string

	pageTemplate = template.Must(template.New(Page).Funcs(template.FuncMap{
		"count": count, "plural": plural, "duration": func(d time.Duration) string { return unbroken(duration(d)) }, "dollars": dollars, "moment": moment, "short": short,
		"amount":   func(t books.Total) string { return grouped(amount(t)) },
		"quantity": func(t books.Total) string { return grouped(t.Quantity.String()) },
		"percent":  percent,
		"style":    func() template.CSS { return template.CSS(pageStyle) }, //nolint:gosec // it is a file of this package
	}).Parse(pageText))
)

const (
	maxColumns  = 90 // of the latencies: with more batches a column is the slowest of several
	keptBatches = 366
)

// pageData is what the page shows.
type pageData struct {
	*Summary
	Made       time.Time
	SLA        time.Duration
	Currencies []currencyData
	Latency    *columnChart
	PerColumn  int // batches
	Throughput *columnChart
	Intervals  []interval
	Table      []batchRow
	Left       int64 // batches that are not in Table
	Skewed     bool  // whether a batch came into the books before it was handed over
	Rejections []books.Rejection
	Costs      []costRow
}

type currencyData struct {
	Currency
	TariffRows, AccountRows []sumRow
}

// sumRow is a sum with a bar.
type sumRow struct {
	books.Total
	Width float64
}

type batchRow struct {
	Name, Records, Rejected, HandedOver, Took string
	Late                                      bool
}

type interval struct {
	Begin   string
	Records int64
	Rate    string
}

type costRow struct {
	Name, Kind, Requests, Cost string
	Width                      float64
}

// percent is a part of a whole. It is below 100 % as long as one is missing.
func percent(part, whole int64) string {
	v := share(float64(part), float64(whole))
	if part < whole {
		v = min(v, 99.9)
	}
	return short(v) + "\u00a0%"
}

func (w *writer) page() error {
	f, err := create(w.folder, Page)
	if err != nil {
		return err
	}
	w.files = append(w.files, f)
	if err := pageTemplate.Execute(f, w.data()); err != nil {
		return err
	}
	return f.done()
}

func (w *writer) data() *pageData {
	slices.SortStableFunc(w.batches, func(a, b batch) int {
		return cmp.Or(a.handedOver.Compare(b.handedOver), cmp.Compare(a.name, b.name))
	})
	d := &pageData{Summary: &w.Summary, Made: w.made, SLA: w.sla, Rejections: w.rejections}
	for _, c := range w.Summary.Currencies {
		d.Currencies = append(d.Currencies, currencyData{c, sumRows(c.Tariffs.Sums), sumRows(c.Accounts.Sums)})
	}
	if len(w.batches) > 0 {
		d.Latency, d.PerColumn = w.latencyChart()
		d.Throughput, d.Intervals = w.throughputChart()
	}
	for n, b := range w.batches {
		d.Skewed = d.Skewed || b.latency < 0
		if n < keptBatches {
			d.Table = append(d.Table, batchRow{
				b.name, count(b.records), count(b.rejected), b.handedOver.Format("2 Jan 15:04:05"), duration(b.latency), w.late(b.latency),
			})
		} else {
			d.Left++
		}
	}
	d.Costs = costRows(w.Money)
	return d
}

func (w *writer) late(latency time.Duration) bool { return w.sla > 0 && latency > w.sla }

// sumRows makes bars for sums of one currency, the largest first.
func sumRows(sums []books.Total) (rows []sumRow) {
	for _, t := range sums {
		rows = append(rows, sumRow{t, share(t.Amount.InexactFloat64(), sums[0].Amount.InexactFloat64())})
	}
	return rows
}

func (w *writer) latencyChart() (chart *columnChart, perColumn int) {
	perColumn = (len(w.batches) + maxColumns - 1) / maxColumns
	var bars []bar
	for some := range slices.Chunk(w.batches, perColumn) {
		slowest := slices.MaxFunc(some, func(a, b batch) int { return cmp.Compare(a.latency, b.latency) })
		bars = append(bars, bar{
			slowest.latency.Seconds(), fmt.Sprintf("%s: %s, %s records", slowest.name, duration(slowest.latency), count(slowest.records)), w.late(slowest.latency),
		})
	}
	l := w.Latencies
	lines := []line{
		{l.P50.Seconds(), "p50 " + duration(l.P50), "middle"},
		{l.P95.Seconds(), "p95 " + duration(l.P95), "high"},
		{l.P99.Seconds(), "p99 " + duration(l.P99), "high"},
	}
	if w.sla > 0 {
		lines = append(lines, line{w.sla.Seconds(), "SLA " + duration(w.sla), "limit"})
	}
	first, last := w.batches[0].name, w.batches[len(w.batches)-1].name
	if first == last {
		last = ""
	}
	return columns("Time from handing over to the books, by batch", bars, lines, seconds, [3]string{first, "", last}), perColumn
}

// throughputChart counts the records that came into the books in intervals of equal length.
func (w *writer) throughputChart() (*columnChart, []interval) {
	const fewest, most = 6, 40
	n := min(max(len(w.batches), fewest), most)
	width := w.Ended.Sub(w.Begun) / time.Duration(n)
	if width <= 0 {
		return nil, nil // all at once: a rate means nothing
	}
	sums := make([]int64, n)
	for _, b := range w.batches {
		at := min(max(0, int(b.reported.Sub(w.Begun)/width)), n-1)
		sums[at] += b.records
	}
	var bars []bar
	var intervals []interval
	for n, records := range sums {
		rate := float64(records) / width.Seconds()
		begin := "after " + duration(time.Duration(n)*width)
		bars = append(bars, bar{value: rate, title: fmt.Sprintf("%s: %s records a second", begin, short(rate))})
		intervals = append(intervals, interval{begin, records, short(rate)})
	}
	average := line{w.Rate(), "mean " + short(w.Rate()), "middle"}
	under := [3]string{"0 s", duration(w.Ended.Sub(w.Begun) / 2), duration(w.Ended.Sub(w.Begun))}
	return columns("Records a second that came into the books", bars, []line{average}, short, under), intervals
}

func costRows(m *Money) []costRow {
	if m == nil {
		return nil
	}
	most := max(m.Cost, m.NaiveCost)
	return []costRow{
		{"This run", "ours", count(m.Queue + m.Blobs), dollars(m.Cost), share(m.Cost, most)},
		{"One message a transaction", "naive", count(m.Naive), dollars(m.NaiveCost), share(m.NaiveCost, most)},
	}
}

// Within is how many batches kept the SLA.
func (d *pageData) Within() int64 { return d.Batches - d.Late }

// OfSLA is which part of the SLA the slowest batch took.
func (d *pageData) OfSLA() string {
	return short(share(max(0, d.Latencies.Max.Seconds()), d.SLA.Seconds())) + "\u00a0%"
}

// ADay is how many records a day the rate is, with three digits that mean something.
func (d *pageData) ADay() string {
	switch n := d.Rate() * 24 * 60 * 60; {
	case n >= 999.5e6:
		return short(n/1e9) + " billion"
	case n >= 999.5e3:
		return short(n/1e6) + " million"
	default:
		return short(n)
	}
}

// MoreRejections reports whether some are not on the page.
func (d *pageData) MoreRejections() bool { return d.Rejected > int64(len(d.Rejections)) }

// OthersAmount is the sum of what is not among the largest.
func (c currencyData) OthersAmount(l Largest) string {
	return grouped(records.FormatAmount(c.Currency.Currency, l.OthersSum))
}

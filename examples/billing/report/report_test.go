package report

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/meter"
)

func written(t *testing.T, folder string, s *Summary, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if s.Path != filepath.Join(folder, Page) {
		t.Errorf("the page is said to be %s", s.Path)
	}
	page, err := os.ReadFile(s.Path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(page), "\u00a0", " ")
}

// M-02: the latency of each batch is measured against the SLA.
func TestTheFilesSayWhatIsInTheBooks(t *testing.T) {
	b, folder := newBooks(t), filepath.Join(t.TempDir(), "new", "report")
	rejected := []records.Rejection{{File: "a.csv", Line: 3, ID: "r3", Reason: "the quantity is negative"}}
	record(t, b, "2026-11-20", start, 2*time.Second, rejected, entry{"acme", "water", "EUR", "1.50", "10.10", 2}, entry{"acme", "gas", "JPY", "2", "100", 1})
	record(t, b, "2026-11-21", start.Add(time.Second), 7*time.Second, nil, entry{"zeta", "water", "EUR", "1", "0.4", 1}, entry{"acme", "water", "EUR", "1", "0.5", 1})
	s, err := Write(t.Context(), b, folder, &Options{SLA: 5 * time.Second, Requests: &Requests{Queue: 20, Blobs: 30}})
	page := written(t, folder, s, err)
	for name, want := range map[string]string{
		Totals:     "account,tariff,currency,records,quantity,amount|acme,gas,JPY,1,2,100|acme,water,EUR,3,2.5,10.60|zeta,water,EUR,1,1,0.40",
		Accounts:   "account,currency,records,amount|acme,EUR,3,10.60|acme,JPY,1,100|zeta,EUR,1,0.40",
		Tariffs:    "tariff,currency,records,quantity,amount|gas,JPY,1,2,100|water,EUR,4,3.5,11.00",
		Rejections: "batch,file,line,id,reason|2026-11-20,a.csv,3,r3,the quantity is negative",
		Batches: "batch,file,records,billed,rejected,items,handed_over,reported,latency_seconds|" +
			"2026-11-20,2026-11-20.csv,4,3,1,1,2026-11-21T06:30:00Z,2026-11-21T06:30:02Z,2.000000|" +
			"2026-11-21,2026-11-21.csv,2,2,0,1,2026-11-21T06:30:01Z,2026-11-21T06:30:08Z,7.000000",
	} {
		var lines []string
		for _, row := range sheetOf(t, folder, name) {
			lines = append(lines, strings.Join(row, ","))
		}
		if got := strings.Join(lines, "|"); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, want)
		}
	}
	if s.Batches != 2 || s.Records != 6 || s.Billed != 5 || s.Rejected != 1 || s.Late != 1 || s.Rate() != 6.0/8 {
		t.Errorf("got %+v", s)
	}
	if want := (Latencies{2 * time.Second, 7 * time.Second, 7 * time.Second, 7 * time.Second}); s.Latencies != want {
		t.Errorf("got latencies %+v, want %+v", s.Latencies, want)
	}
	if len(s.Currencies) != 2 || !s.Currencies[0].Amount.Equal(decimal.RequireFromString("11")) || len(s.Currencies[0].Accounts.Sums) != 2 {
		t.Errorf("got currencies %+v", s.Currencies)
	}
	for _, want := range []string{"5 records billed, in 2 batches", "11.00", "1 batch took longer than the SLA of 5 s", "(late)", "SLA 5 s", "p95 7 s", "$0.000050", "$0.000036"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// TestTheColumnsAreDocumented: the comment of the package lists those that the files have.
func TestTheColumnsAreDocumented(t *testing.T) {
	folder := t.TempDir()
	s, err := Write(t.Context(), newBooks(t), folder, nil)
	if page := written(t, folder, s, err); !strings.Contains(page, "Nothing was billed yet") {
		t.Error("the page of empty books does not say so")
	}
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{Totals, Accounts, Tariffs, Batches, Rejections} {
		want := strings.Join(sheetOf(t, folder, name)[0], ", ")
		if !regexp.MustCompile(regexp.QuoteMeta(name) + ` +` + regexp.QuoteMeta(want) + "\n").Match(text) {
			t.Errorf("doc.go does not say that %s has %s", name, want)
		}
	}
}

// TestNamesAreNoMarkup: what comes from outside is text on the page, and the page loads nothing.
func TestNamesAreNoMarkup(t *testing.T) {
	b, folder := newBooks(t), t.TempDir()
	rejected := []records.Rejection{{File: hostile, Line: 1, ID: hostile, Reason: hostile}}
	record(t, b, hostile, start, time.Second, rejected, entry{hostile, hostile, hostile, "1", "1", 1})
	s, err := Write(t.Context(), b, folder, &Options{SLA: time.Second, Requests: &Requests{}})
	page := written(t, folder, s, err)
	if strings.Contains(page, "<script") || strings.Contains(page, `"x"`) {
		t.Error("a name is markup")
	}
	if n := strings.Count(page, "&lt;script&gt;"); n < 8 {
		t.Errorf("the names are there %d times", n)
	}
	if found := regexp.MustCompile(`(?i)<(script|link|img|iframe|object)|\bsrc=|url\(|https?:|@import| on[a-z]+=`).FindString(page); found != "" {
		t.Errorf("the page has %q: it must need no other file and no script", found)
	}
}

// TestAReportThatFailsLeavesTheOneBefore, and no other file.
func TestAReportThatFailsLeavesTheOneBefore(t *testing.T) {
	b, folder := newBooks(t), t.TempDir()
	record(t, b, "batch", start, time.Second, nil, entry{"acme", "water", "EUR", "1", "1", 1})
	s, err := Write(t.Context(), b, folder, &Options{Made: start})
	before := written(t, folder, s, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Write(ctx, b, folder, nil); err == nil || !strings.Contains(err.Error(), folder) {
		t.Errorf("got %v", err)
	}
	w := &writer{ctx: t.Context(), folder: folder}
	if err := b.Read(t.Context(), w.readBatches); err != nil {
		t.Fatal(err)
	}
	w.drop()
	if after := written(t, folder, s, nil); after != before {
		t.Error("the page changed")
	}
	if files, _ := os.ReadDir(folder); len(files) != 6 {
		t.Errorf("got %v, want the six files of a report", files)
	}
	s, err = Write(t.Context(), b, folder, nil)
	if after := written(t, folder, s, err); after == before {
		t.Error("the page was not replaced")
	}
}

// TestAReportThatCannotBePublishedLeavesNoTemporaryFile: a folder has the name of the page.
func TestAReportThatCannotBePublishedLeavesNoTemporaryFile(t *testing.T) {
	b, folder := newBooks(t), t.TempDir()
	if err := os.MkdirAll(filepath.Join(folder, Page, "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(t.Context(), b, folder, nil); err == nil {
		t.Error("there is no error")
	}
	if left, _ := filepath.Glob(filepath.Join(folder, ".*")); len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
}

func TestMoneyIsThatOfThePrices(t *testing.T) {
	m := Requests{Queue: 4000, Blobs: 10_000}.money(1_000_000)
	if m.Cost != 0.014 || m.NaiveCost != 6 || m.Naive != 6_000_000 || int(m.Times()) != 428 {
		t.Errorf("got %+v", m)
	}
	m = Requests{Queue: 100, Blobs: 100, Records: 50, Price: meter.Price{Class1: 1, Unit: 100}, BlobPrice: meter.Price{Class1: 5, Unit: 100}}.money(9)
	if m.QueueCost != 1 || m.BlobsCost != 5 || m.Cost != 6 || m.NaiveCost != 3 || m.Times() != 0.5 {
		t.Errorf("got %+v", m)
	}
	if (&Money{}).Times() != 0 {
		t.Error("the naive design costs some times nothing")
	}
}

// TestClocksThatDifferAreNamed: a batch that is in the books before it was handed over.
func TestClocksThatDifferAreNamed(t *testing.T) {
	b, folder := newBooks(t), t.TempDir()
	record(t, b, "batch", start, -time.Minute, nil, entry{"acme", "water", "EUR", "1", "1", 1})
	s, err := Write(t.Context(), b, folder, &Options{SLA: time.Minute})
	if page := written(t, folder, s, err); !strings.Contains(page, "the clocks of the machines differ") || s.Rate() != 0 {
		t.Errorf("the page does not say so, or a rate: %v", s.Rate())
	}
}

// TestManyBatchesFitOnThePage: columns stand for several, and what is left out is counted.
func TestManyBatchesFitOnThePage(t *testing.T) {
	b, folder := newBooks(t), t.TempDir()
	for n := range 2*maxColumns + 1 {
		record(t, b, start.AddDate(0, 0, n).Format(time.DateOnly), start.Add(time.Duration(n)*time.Second), time.Second, nil)
	}
	s, err := Write(t.Context(), b, folder, nil)
	page := written(t, folder, s, err)
	if !strings.Contains(page, "slowest of 3 batches") || strings.Count(page, `class="column`) > maxColumns+40 {
		t.Errorf("%d columns", strings.Count(page, `class="column`))
	}
}

func TestOthersAreWhatIsNotAmongTheLargest(t *testing.T) {
	b, folder := newBooks(t), t.TempDir()
	var entries []entry
	for n := range keptAccounts + 5 {
		entries = append(entries, entry{string(rune('a' + n)), "water", "EUR", "1", decimal.New(int64(n), 0).String(), 1})
	}
	record(t, b, "batch", start, time.Second, nil, entries...)
	s, err := Write(t.Context(), b, folder, nil)
	page := written(t, folder, s, err)
	largest := s.Currencies[0].Accounts
	if len(largest.Sums) != keptAccounts || largest.Sums[0].Account != "o" || largest.Others != 5 || largest.OthersCount != 5 || largest.OthersSum.String() != "10" {
		t.Errorf("got %+v", largest)
	}
	if !strings.Contains(page, "5 others") || !strings.Contains(page, "10.00") {
		t.Error("the page does not say so")
	}
}

package main

import (
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/internal/azuritetest"
)

// tenBatches returns books with ten batches, which took 1 to 10 seconds.
func tenBatches(t *testing.T) *books.Books {
	t.Helper()
	b, err := books.Open(t.Context(), filepath.Join(t.TempDir(), "books.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	now := time.Now()
	for n := range 10 {
		part := &books.Part{Rejected: []records.Rejection{{Line: 99, ID: "<b>x", Reason: "=a reason", Text: "no <i>record"}}}
		for i, account := range []string{"=SUM(A1)", "<script>", "a;+b", "山田"} {
			part.Charged = append(part.Charged, books.Charged{
				Record:   records.Record{Line: i + 2, ID: fmt.Sprint(n, "-", i), Time: now, Account: account, Tariff: "water-" + []string{"eur", "jpy"}[i%2], Quantity: decimal.New(25, -1)},
				Currency: []string{"EUR", "JPY"}[i%2], Amount: decimal.New(int64(100000+i), int32(-2+2*(i%2))),
			})
		}
		batch := books.Batch{Name: fmt.Sprintf("batch-%02d", n), File: "-usage.csv", Records: 5, Items: 1, HandedOver: now.Add(-time.Duration(n+1) * time.Second)}
		if first, err := b.Record(t.Context(), &batch, func(yield func(*books.Part, error) bool) { yield(part, nil) }); err != nil || !first {
			t.Fatal(first, err)
		}
	}
	return b
}

// M-02: the report has the sums, and the latencies of the batches against the SLA.
func TestTheReportSaysWhatIsInTheBooks(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "new")
	r, err := writeReport(t.Context(), tenBatches(t), folder, 8*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if r.Records != 50 || r.Billed != 40 || r.Rejected != 10 || r.Open != 10 || len(r.Batches) != 10 || r.Late < 2 || r.Late > 4 {
		t.Errorf("got %d records, %d billed, %d rejected, %d open, %d batches, %d late", r.Records, r.Billed, r.Rejected, r.Open, len(r.Batches), r.Late)
	}
	seconds := func(d time.Duration) int { return int(d / time.Second) }
	if slow := seconds(r.Max) - 10; slow > 1 || seconds(r.P50) < 5 || seconds(r.P50) > 6+slow || r.P95 != r.Max || r.P99 != r.Max {
		t.Errorf("latencies: got %v, %v, %v, %v", r.P50, r.P95, r.P99, r.Max)
	}
	want := []string{
		"account,tariff,currency,records,quantity,amount",
		"<script>,water-jpy,JPY,10,25,1000010", "'=SUM(A1),water-eur,EUR,10,25,10000.00", "a;+b,water-eur,EUR,10,25,10000.20", "山田,water-jpy,JPY,10,25,1000030",
	}
	if got := rows(t, filepath.Join(folder, "totals.csv")); !slices.Equal(got, want) {
		t.Errorf("totals.csv: got %q, want %q", got, want)
	}
	batches := rows(t, filepath.Join(folder, "batches.csv"))
	if len(batches) != 11 || !regexp.MustCompile(`^batch-00,'-usage\.csv,5,4,1,1,20\S+Z,20\S+Z,1\.\d{6}$`).MatchString(batches[1]) {
		t.Errorf("batches.csv: got %q", batches)
	}
	if got, want := rows(t, filepath.Join(folder, "rejections.csv"))[1], "<b>x,,,,,'=a reason,batch-00,'-usage.csv,99,,no <i>record"; got != want {
		t.Errorf("rejections.csv: got %q, want %q", got, want)
	}
	page := strings.Join(rows(t, r.Path), "\n")
	for _, want := range []string{"40 of 50 records billed, in 10 batches", "20,000.20", "2,000,040", "&lt;b&gt;x", "(late)", "width: 100.00%"} {
		if !strings.Contains(page, want) {
			t.Errorf("page: got no %q", want)
		}
	}
	if strings.Contains(page, "<script") || strings.Contains(page, "ZgotmplZ") {
		t.Error("page: got markup from a name")
	}
}

func TestAReportThatFailsLeavesTheOneBefore(t *testing.T) {
	t.Parallel()
	b, folder := tenBatches(t), t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "report.html"), 0o700); err != nil { // cannot be replaced
		t.Fatal(err)
	}
	if _, err := writeReport(t.Context(), b, folder, time.Second); err == nil || !strings.Contains(err.Error(), "report.html") {
		t.Errorf("got %v, want an error that names the page", err)
	}
	names(t, folder, "batches.csv", "rejections.csv", "report.html", "totals.csv")
}

// The page is opened in Chromium: nothing sticks out at the side, and it is not empty. If MILLRACE_SCREENSHOTS names a
// folder, pictures of it are left there.
func TestThePageFitsEveryWidth(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a browser")
	}
	t.Parallel()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		if azuritetest.Required("chromium") {
			t.Fatal(err)
		}
		t.Skipf("NOT LOOKED AT IN CHROMIUM: %v", err)
	}
	folder := t.TempDir()
	r, err := writeReport(t.Context(), tenBatches(t), folder, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(r.Path)
	if err != nil {
		t.Fatal(err)
	}
	// The page has no script, so it is measured from outside, in frames of exact widths.
	var frames strings.Builder
	widths := []int{320, 390, 768, 1280, 2560}
	for _, width := range widths {
		fmt.Fprintf(&frames, `<iframe style="width:%dpx;height:900px;border:0" srcdoc="%s"></iframe>`, width, html.EscapeString(string(page)))
	}
	measure := `<script>onload = () => document.body.innerHTML = [...document.querySelectorAll("iframe")].map(f => {
		const d = f.contentDocument, out = [...d.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > d.documentElement.clientWidth + 1 && !e.closest(".scroll"));
		return "[" + f.clientWidth + " " + d.documentElement.scrollWidth + " " + d.body.innerText.length + " " + out.slice(0, 3).map(e => e.tagName + "." + e.getAttribute("class")).join(",") + "]";
	}).join("")</script>`
	wrapper := filepath.Join(folder, "frames.html")
	write(t, wrapper, `<!doctype html><meta charset="utf-8"><body>`+frames.String()+measure)
	run := func(args ...string) string {
		args = append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--user-data-dir=" + t.TempDir()}, args...)
		out, err := exec.CommandContext(t.Context(), chromium, args...).Output()
		if err != nil {
			t.Fatalf("chromium %v: %v", args, err)
		}
		return string(out)
	}
	found := regexp.MustCompile(`\[(\d+) (\d+) (\d+) ([^\]]*)\]`).FindAllStringSubmatch(run("--dump-dom", "file://"+wrapper), -1)
	if len(found) != len(widths) {
		t.Fatalf("measured %v, want %d widths", found, len(widths))
	}
	for n, one := range found {
		if one[1] != fmt.Sprint(widths[n]) || one[2] != one[1] || one[4] != "" || len(one[3]) < 4 {
			t.Errorf("in %s pixels the page is %s wide and has %s characters; outside: %s", one[1], one[2], one[3], one[4])
		}
	}
	shots := os.Getenv("MILLRACE_SCREENSHOTS")
	if shots == "" {
		return
	}
	for _, width := range []int{390, 1280} {
		for scheme, number := range map[string]int{"dark": 0, "light": 1} {
			run(fmt.Sprintf("--window-size=%d,3200", width), fmt.Sprintf("--blink-settings=preferredColorScheme=%d", number),
				fmt.Sprintf("--screenshot=%s", filepath.Join(shots, fmt.Sprintf("billing-%d-%s.png", width, scheme))), "file://"+r.Path)
		}
	}
}

package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/internal/azuritetest"
)

// M-07: the totals of the program are those that sort, awk and bc compute from the same files.
func TestTotalsAreThoseOfAScript(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts processes")
	}
	for _, tool := range []string{"sh", "awk", "bc", "sort", "paste", "mktemp"} {
		if _, err := exec.LookPath(tool); err != nil {
			if azuritetest.Required("awk") {
				t.Fatalf("this test needs %s: %v", tool, err)
			}
			t.Skipf("NOT RECOMPUTED: %v", err)
		}
	}
	text := func(path string) string {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	builtIn := text("records/tariffs.csv")
	for _, c := range []struct {
		name, usage, tariffs string
		rows                 int // at least
	}{
		{"generated records", usageFile(records.Generate(17, 20_000, 5)), builtIn, 1000},
		{"bad lines", text("testdata/bad.csv"), builtIn, 3},
		{"corners", corners(1, 4000), cornerTariffs, 50},
		{"other corners", corners(2, 4000), cornerTariffs, 50},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			usage, tariffs, out := filepath.Join(dir, "usage.csv"), filepath.Join(dir, "tariffs.csv"), filepath.Join(dir, "report")
			write(t, usage, c.usage)
			write(t, tariffs, c.tariffs)
			if r := billing(t, "-in", usage, "-tariffs", tariffs, "-out", out); r.status != cli.StatusDone {
				t.Fatalf("billing: %+v", r)
			}
			var stderr bytes.Buffer
			command := exec.CommandContext(t.Context(), "sh", "recompute.sh", usage, tariffs)
			command.Stderr = &stderr
			script, err := command.Output()
			if err != nil || stderr.Len() > 0 {
				t.Fatalf("recompute.sh: %v: %s", err, stderr.String())
			}
			got, want := rows(t, filepath.Join(out, "totals.csv")), strings.Split(strings.TrimSpace(string(script)), "\n")
			if len(got) != len(want) || len(want) <= c.rows {
				t.Errorf("rows: got %d, the script has %d; want at least %d", len(got), len(want), c.rows)
			}
			for i := range min(len(got), len(want)) {
				if got[i] != want[i] {
					t.Fatalf("row %d: got %s; the script has %s", i, got[i], want[i])
				}
			}
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// cornerTariffs are prices with every number of decimals, ids that awk could take for numbers, lines that do not count, and columns in
// another order.
const cornerTariffs = "\ufeffcurrency,price,note,tariff,unit\r\n" +
	"EUR,0.005,,tie-eur,kWh\r\n" +
	"JPY,0.5,,tie-jpy,kWh\n" +
	"KWD,0.0005,,tie-kwd,kWh\n" +
	"CLF,0.00005,,tie-clf,kWh\n" +
	"USD,1000000000000,,dear,kWh\n" +
	"USD,999999999999.999999999,\"x, y\",1e3,kWh\n" +
	"GBP,000.000000001,,1000,kWh\n" +
	"GBP,7,again,1000,kWh\n" +
	"CHF,0,,\"free, \"\"really\"\"\",kWh\n" +
	"EUR,-1,,negative,kWh\n" +
	"EUR,1e3,,exponent,kWh\n" +
	"\"EUR,1,,open,kWh\n"

// corners makes usage of few accounts with ties, bounds, duplicates, zones and lines that do not count.
func corners(seed uint64, n int) string {
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	var b strings.Builder
	b.WriteString("quantity,account,\"time\",extra,tariff,id\n")
	for i := range n {
		at := time.Date(2027, 2, 28, 22, 0, 0, 0, time.UTC).AddDate(random.IntN(3), 0, 0).Add(time.Duration(random.IntN(4*60)) * time.Minute)
		when := at.In(time.FixedZone("", random.IntN(47*60)*60-23*3600-1800)).Format(time.RFC3339)
		if random.IntN(2) == 0 {
			when = at.Format("2006-01-02T15:04:05.000Z")
		}
		quantity := pick("1", "3", "5", "0.5", "0.999999999", "1.000000001", "1000000000000", "999999999999.999999999", "0", "007.50",
			strconv.Itoa(random.IntN(1000)), fmt.Sprintf("%d.%d", random.IntN(1000), random.IntN(1000)))
		line := quantity + "," + pick("a", "A", "10", "'+49", "+49", "'b", "1e1", `"b, ""c"""`, "山田", "é") + "," + when + ",," +
			pick("tie-eur", "tie-jpy", "tie-kwd", "tie-clf", "dear", "1e3", "1000", `"free, ""really"""`, "negative", "exponent", "open", "TIE-EUR") + "," +
			pick("u", "U") + strconv.Itoa(random.IntN(n))
		if i%10 == 0 { // one of ten is not a record
			line = pick("-1,a,"+when+",,dear,x", "1e9,a,"+when+",,dear,x", "1,a,"+when+",,dear", `1,"a,`+when+",,dear,x", "1,a,2026-02-29T00:00:00Z,,dear,x",
				"1,a,1969-12-31T23:59:59Z,,dear,x", "1,a,1970-01-01T00:00:00+00:01,,dear,x", "1,a,"+when[:16]+",,dear,x", "1000000000000.1,a,"+when+",,dear,x",
				"1.0000000001,a,"+when+",,dear,x", "1,,"+when+",,dear,x", "1, a,"+when+",,dear,x", "1,a\x00,"+when+",,dear,x", "1,a\xff,"+when+",,dear,x",
				"1,"+strings.Repeat("ü", 65)+","+when+",,dear,x", "1,\xed\xa0\x80,"+when+",,dear,x", "1,\xc0\xaf,"+when+",,dear,x", "",
				"1,a,9999-12-31T23:59:59-00:01,,dear,x", "1,a,2026-11-21T24:00:00Z,,dear,x", "1,a,2026-11-21T08:30:00+24:00,,dear,x")
		}
		b.WriteString(line + pick("\n", "\r\n"))
	}
	b.WriteString("1," + strings.Repeat("ü", 64) + ",9999-12-31T23:59:59Z,,dear,end") // no end of the line
	return b.String()
}

// usageFile returns records as a usage file.
func usageFile(all iter.Seq[records.Record]) string {
	var text strings.Builder
	w := csv.NewWriter(&text)
	_ = w.Write(records.Columns) // a Builder does not fail
	for r := range all {
		_ = w.Write([]string{r.ID, r.Time.Format(time.RFC3339Nano), r.Account, r.Tariff, r.Quantity.String()})
	}
	w.Flush()
	return text.String()
}

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/bench/internal/report/reporttest"
	"github.com/millrace/millrace/scaling/replay"
)

// ownTrace writes a short trace to a file, as a user would.
func ownTrace(t *testing.T, name string) string {
	t.Helper()
	trace := replay.Flash(replay.Small(), 1)
	trace.Name = name
	trace.Arrivals = trace.Arrivals[360:720]
	var b bytes.Buffer
	if err := trace.Write(&b); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "mine.csv")
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOwnTracesAreCompared: the output, the page and the plots have every rule, and twice the same.
func TestOwnTracesAreCompared(t *testing.T) {
	page := reporttest.NewPage(t, "scaling")
	args := []string{"-trace", ownTrace(t, "mine & <yours>"), "-trace", ownTrace(t, "another"), "-page", page.Path}
	var out, again strings.Builder
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	text, drawn := page.Read(t)
	for _, family := range families {
		if n := strings.Count(out.String(), "| "+family+": ") + strings.Count(out.String(), "| **"+family+": "); n < 2 {
			t.Errorf("%s: got %d rows in\n%s\nwant some for each trace", family, n, out.String())
		}
	}
	if !strings.Contains(text, out.String()) || !strings.Contains(text, "images/scaling-timeline.svg") {
		t.Error("the page does not have the output and the plots")
	}
	reporttest.WellFormed(t, drawn)
	if n := strings.Count(drawn, "<g transform"); n != 2 {
		t.Errorf("got %d panels, want 2", n)
	}
	timeline, err := os.ReadFile(filepath.Join(filepath.Dir(page.Path), "images", "scaling-timeline.svg"))
	if err != nil {
		t.Fatal(err)
	}
	reporttest.WellFormed(t, string(timeline))
	if n := strings.Count(string(timeline), "<title>"); n != 2*len(drawnRules) {
		t.Errorf("got %d lines, want one for each of %d rules on two traces", n, len(drawnRules))
	}
	if err := run(t.Context(), args, &again, io.Discard); err != nil || again.String() != out.String() {
		t.Errorf("a second run: got %v and\n%s\nwant the same as\n%s", err, again.String(), out.String())
	}
}

// TestTheCommittedPageIsWhatIsPrinted: of one trace, which is quick; -page writes all.
func TestTheCommittedPageIsWhatIsPrinted(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("other processors round sums of products otherwise")
	}
	page, err := os.ReadFile("../../docs/scaling.md")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run(t.Context(), []string{"-only", "^burst from zero, small$", "-others", "0", "-tune=false"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(out.String(), "\n### Burst from zero, small\n")
	if !found || strings.Count(table, "\n") < 14 {
		t.Fatalf("got\n%s\nwant a table", out.String())
	}
	if !strings.Contains(string(page), table) {
		t.Errorf("docs/scaling.md does not have\n%s\nwrite it again with: cd bench && go run ./scaling -page ../docs/scaling.md", table)
	}
}

// made returns a row with this share of late jobs and these instance-hours.
func made(late, hours float64) row {
	return row{Result: replay.Result{Jobs: 1000, Late: 1000 * late, InstanceHours: hours}}
}

// TestTheBestHoldsTheSLA: and among those that do, it has the fewest instance-hours.
func TestTheBestHoldsTheSLA(t *testing.T) {
	for _, c := range []struct {
		name             string
		a, b             row
		better, dominant bool
	}{
		{"both hold it", made(0.005, 10), made(0, 11), true, false},
		{"exactly enough", made(0.01, 10), made(0, 11), true, false},
		{"one misses it", made(0, 100), made(0.011, 1), true, false},
		{"both miss it", made(0.2, 100), made(0.3, 1), true, false},
		{"better in both", made(0, 1), made(0.1, 2), true, true},
		{"fewer late jobs", made(0, 1), made(0.001, 1), false, true},
		{"the same", made(0, 1), made(0, 1), false, false},
	} {
		if got := c.a.better(&c.b); got != c.better {
			t.Errorf("%s: better is %v, want %v", c.name, got, c.better)
		}
		if got := c.a.dominates(&c.b); got != c.dominant {
			t.Errorf("%s: dominates is %v, want %v", c.name, got, c.dominant)
		}
		if c.better && c.b.better(&c.a) || c.dominant && c.b.dominates(&c.a) {
			t.Errorf("%s: both ways", c.name)
		}
	}
}

// TestTheVerdictSaysWhereTheAgentIsNotTheBest.
func TestTheVerdictSaysWhereTheAgentIsNotTheBest(t *testing.T) {
	rows := []row{made(0, 10), made(0, 9), made(0, 1)}
	rows[0].candidate = candidate{family: agent, setting: "set"}
	rows[1].candidate = candidate{family: keda, setting: "5"}
	rows[2].candidate = candidate{family: functions, setting: "7", tuned: true}
	c := compared{trace: replay.Trace{Name: "test"}, rows: rows}
	said := c.verdict()
	for _, want := range []string{"*test*", keda + ": 5 holds the SLA with 9.0", "the agent with 10.0", "is dominated by " + keda} {
		if !strings.Contains(said, want) {
			t.Errorf("got %q, want %q in it", said, want)
		}
	}
	if strings.Contains(said, functions) {
		t.Errorf("got %q, want nothing of what was tuned afterwards", said)
	}
	rows[1].InstanceHours = 11
	if said := c.verdict(); said != "" {
		t.Errorf("the agent is the best: got %q, want nothing", said)
	}
}

// TestTheBestFixedNumberIsTheLeast that holds the SLA.
func TestTheBestFixedNumberIsTheLeast(t *testing.T) {
	trace := replay.Steady(replay.Small(), 1) // half of 800 a second, in slots of a second: 6.25 instances
	best, err := bestFixed(t.Context(), trace)
	if err != nil || best.setting != "7" || !best.holds() {
		t.Errorf("got %q, %v, want 7 instances", best.setting, err)
	}
}

// TestOtherSeedsAreCounted.
func TestOtherSeedsAreCounted(t *testing.T) {
	c := comparison{progress: io.Discard}
	table, err := c.elsewhere(t.Context(), 1, 2, regexp.MustCompile("^flash crowd, small$"))
	if err != nil || strings.Count(table, "\n| flash crowd, small | 2 of 2 | ") != 1 {
		t.Errorf("got %v and\n%s\nwant a row with both seeds", err, table)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(bad, []byte("# handling: 1s\narrivals\nmany\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"no such file":              {"-trace", "none.csv"},
		`bad.csv:3: arrivals is`:    {"-trace", bad},
		"no trace has such a name":  {"-only", "nothing at all"},
		"error parsing regexp":      {"-only", "("},
		"must not be negative":      {"-others", "-1"},
		"flag provided but not def": {"-colour"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", args, err, want)
		}
	}
	if err := run(t.Context(), []string{"-h"}, io.Discard, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: got %v, want the help", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := run(ended, []string{"-trace", ownTrace(t, "mine")}, io.Discard, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: got %v, want its error", err)
	}
}

func TestTextsAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{0: "0s", time.Minute: "1m", 90 * time.Second: "1m30s", 72 * time.Hour: "72h", 10 * time.Second: "10s", 1200 * time.Millisecond: "1.2s", time.Hour + time.Minute: "1h1m"} {
		if got := short(d); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for share, want := range map[float64]string{0: "0 %", 1e-7: "0 %", 0.0002: "0.020 %", 0.0123: "1.2 %", 1: "100.0 %"} {
		if got := percent(share); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := fmt.Sprint(hourTicks(4, 60)); got != "[5 10 20 50]" {
		t.Errorf("ticks: got %s", got)
	}
	if lateHeight(0) != panelBottom || math.Abs(lateHeight(1)-panelTop) > 1e-9 {
		t.Errorf("heights of none and all: got %v and %v", lateHeight(0), lateHeight(1))
	}
}

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/replay"
)

// ownTrace writes a short trace to a file, as a user would.
func ownTrace(t *testing.T, name string) string {
	t.Helper()
	trace := replay.Flash(replay.Small(), 1)
	trace.Name = name
	trace.Arrivals = trace.Arrivals[360:720]
	var b bytes.Buffer
	path := filepath.Join(t.TempDir(), "mine.csv")
	if err := errors.Join(trace.Write(&b), os.WriteFile(path, b.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOwnTracesAreCompared: the output has every rule, and twice the same.
func TestOwnTracesAreCompared(t *testing.T) {
	path := newPage(t, "scaling")
	args := []string{"scaling", "-trace", ownTrace(t, "mine & <yours>"), "-trace", ownTrace(t, "another"), "-page", path}
	var out, again strings.Builder
	if err := run(t.Context(), args, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, family := range []string{ruleAgent, ruleFixed, ruleTable, ruleKEDA, ruleFunctions, ruleBacklog, ruleLatency} {
		if n := strings.Count(out.String(), "| "+family+": ") + strings.Count(out.String(), "| **"+family+": "); n < 2 {
			t.Errorf("%s: got %d rows in\n%s\nwant some for each trace", family, n, out.String())
		}
	}
	if err := run(t.Context(), args, &again, io.Discard); err != nil || again.String() != out.String() {
		t.Errorf("a second run: got %v and\n%s\nwant the same as\n%s", err, again.String(), out.String())
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := run(ended, args, io.Discard, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("an ended context: got %v, want its error", err)
	}
}

// TestTheCommittedPageIsWhatIsPrinted: of one trace, which is quick; -page writes all.
func TestTheCommittedPageIsWhatIsPrinted(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("other processors round sums of products otherwise")
	}
	var out strings.Builder
	if err := run(t.Context(), []string{"scaling", "-only", "^burst from zero, small$", "-others", "0"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(out.String(), "\n### Burst from zero, small\n")
	if !found || strings.Count(table, "\n") < 14 {
		t.Fatalf("got\n%s\nwant a table", out.String())
	}
	if !strings.Contains(read(t, "../docs/scaling.md"), table) {
		t.Errorf("docs/scaling.md does not have\n%s\nwrite it again with: go run ./bench scaling -page docs/scaling.md", table)
	}
}

// made returns a row with this share of late jobs and these instance-hours.
func made(late, hours float64) outcome {
	return outcome{Result: replay.Result{Jobs: 1000, Late: 1000 * late, InstanceHours: hours}}
}

// TestTheBestHoldsTheSLA: and among those that do, it has the fewest instance-hours.
func TestTheBestHoldsTheSLA(t *testing.T) {
	for _, c := range []struct {
		name   string
		a, b   outcome
		better bool
	}{
		{"both hold it", made(0.005, 10), made(0, 11), true},
		{"exactly enough", made(0.01, 10), made(0, 11), true},
		{"one misses it", made(0, 100), made(0.011, 1), true},
		{"both miss it", made(0.2, 100), made(0.3, 1), true},
		{"the same", made(0, 1), made(0, 1), false},
	} {
		if got := c.a.better(&c.b); got != c.better {
			t.Errorf("%s: better is %v, want %v", c.name, got, c.better)
		}
		if c.better && c.b.better(&c.a) {
			t.Errorf("%s: both ways", c.name)
		}
	}
	c := compared{rows: []outcome{made(0, 1), made(0, 3), made(0, 2)}}
	c.rows[0].family = ruleAgent
	if all, others := c.best(false), c.best(true); all != &c.rows[0] || others != &c.rows[2] {
		t.Errorf("best of all and of others: got %v and %v instance-hours, want 1 and 2", all.InstanceHours, others.InstanceHours)
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
}

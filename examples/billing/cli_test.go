package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/examples/internal/cli"
)

// result is what a run of the program gave.
type result struct {
	status         int
	stdout, stderr string
}

// billing runs the program in this process.
func billing(t *testing.T, args ...string) result {
	t.Helper()
	return billingUntil(t.Context(), args...)
}

func billingUntil(ctx context.Context, args ...string) result {
	var stdout, stderr bytes.Buffer
	status := command(ctx, args, &stdout, &stderr)
	return result{status, stdout.String(), stderr.String()}
}

func TestInvalidCommandLinesAreOneLine(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"unknown"}, {"-unknown"}, {"-records", "0"}, {"-records", "x"}, {"-days", "0"}, {"-sla", "0s"}, {"-price", "-1"}, {"-blob-price", "NaN"},
		{"-in", ""}, {"-in", "missing.csv"}, {"-in", "."}, {"-in", "doc.go", "-records", "5"}, {"-out", " "}, {"-tariffs", ""},
		{"ship", "-to", ""}, {"ship", "extra"}, {"ship", "-days", "-1"},
		{"initiator", "-visibility", "1s"}, {"initiator", "-account", "nowhere"}, {"worker", "-visibility", "2h"}, {"worker", "-blobs", ""},
		{"controller", "-account", "@missing"}, {"controller", "extra"}, {"controller", "-books", ""}, {"controller", "-group", "5"},
		{"report", "-sla", "-5s"}, {"report", "-out", ""}, {"generate", "-records", "-1"}, {"generate", "-out", ""},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			r := billing(t, args...)
			if r.status != cli.StatusUsage || r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "billing: ") {
				t.Errorf("got %+v; want status %d and one line on stderr", r, cli.StatusUsage)
			}
		})
	}
}

func TestHelpNamesEveryCommandAndFlag(t *testing.T) {
	t.Parallel()
	whole := billing(t, "-h")
	if whole.status != cli.StatusDone || whole.stderr != "" {
		t.Errorf("help: got %+v, want status %d", whole, cli.StatusDone)
	}
	for _, flag := range []string{"-in", "-records", "-days", "-seed", "-tariffs", "-out", "-sla", "-price", "-blob-price"} {
		if !strings.Contains(whole.stdout, "\n  "+flag+" ") {
			t.Errorf("help: got no %s", flag)
		}
	}
	for _, c := range commandLine().Commands {
		if !strings.Contains(whole.stdout, "billing "+c.Name+" ") {
			t.Errorf("help: got no %s", c.Name)
		}
		if r := billing(t, c.Name, "-h"); r.status != cli.StatusDone || r.stdout != c.Help || r.stderr != "" {
			t.Errorf("%s -h: got %+v, want its help", c.Name, r)
		}
	}
}

func TestWithoutAServerRolesNameTheOneToStart(t *testing.T) {
	t.Parallel()
	e, err := emulator.New(nil, nil).Start("")
	if err != nil {
		t.Fatal(err)
	}
	location := e.ConnectionString()
	if err := e.Close(); err != nil { // now nothing listens on its port
		t.Fatal(err)
	}
	for _, name := range []string{"initiator", "worker", "controller"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := billing(t, name, "-account", location)
			if r.status != cli.StatusFailed || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "millrace serve") {
				t.Errorf("got %+v; want status %d and one line with millrace serve", r, cli.StatusFailed)
			}
		})
	}
}

// M-02.
func TestGeneratedRecordsAreBilledAndNothingElseIsLeft(t *testing.T) {
	tmp, dir := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Chdir(dir)
	r := billing(t, "-records", "5000", "-days", "5")
	if r.status != cli.StatusDone || r.stderr != "" {
		t.Fatalf("got %+v, want status %d", r, cli.StatusDone)
	}
	for _, want := range []string{"5,000 records are generated, for 5 days", "5000 of 5000 records are charged", "report.html",
		"5 with 5,000 records: 5,000 are billed, 0 rejected", "latency of a batch", "of the SLA", "storage requests", "30,000 requests"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("output: got %q, want %q in it", r.stdout, want)
		}
	}
	names(t, tmp)
	names(t, dir, defaultOut)
	names(t, filepath.Join(dir, defaultOut), "accounts.csv", "batches.csv", "rejections.csv", "report.html", "tariffs.csv", "totals.csv")
}

// names checks which files are in a folder.
func names(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("files in %s: got %v, want %v", filepath.Base(dir), got, want)
	}
}

// Each line that cannot be billed is named with file, line and reason, and the rest is billed.
func TestBadLinesAreNamedAndTheRestIsBilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	usage := filepath.Join(dir, "usage.csv")
	text := `id,time,account,tariff,quantity
A1,2026-11-02T10:00:00Z,DE-1,electricity-de,10
A2,2026-11-02T11:00:00Z,DE-1,no-such-tariff,10
A1,2026-11-02T12:00:00Z,DE-1,electricity-de,10
A3,2026-11-02T13:00:00Z,DE-1,electricity-de,-4
A4,2026-11-02T13:00:00Z,DE-1,electricity-de,9999999999999999
A5,2026-11-02T13:00:00Z,DE-1
A6,2026-11-02T14:00:00Z,DE-1,electricity-de,20
`
	if err := os.WriteFile(usage, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "report")
	r := billing(t, "-in", usage, "-out", out)
	if r.status != cli.StatusDone || !strings.Contains(r.stdout, "1 with 7 records: 2 are billed, 5 rejected") {
		t.Fatalf("got %+v, want 2 billed and 5 rejected", r)
	}
	rejected := strings.Join(rows(t, filepath.Join(out, "rejections.csv")), "\n")
	for _, line := range []string{"3", "4", "5", "6", "7"} {
		if !strings.Contains(rejected, ",usage.csv,"+line+",") {
			t.Errorf("rejections: got %s, want line %s", rejected, line)
		}
		if !strings.Contains(r.stdout, "rejected: usage.csv:"+line+": ") {
			t.Errorf("output: got %s, want line %s", r.stdout, line)
		}
	}
}

// What is not shown is in the report, if there is one.
func TestManyBadLinesAreCounted(t *testing.T) {
	t.Parallel()
	for record, want := range map[string]string{
		"": "rejected: 2 lines more; no report names them, because there is no record to bill\n",
		"A1,2026-11-02T10:00:00Z,DE-1,electricity-de,10\n": "rejected: 2 lines more; the report names them\n",
	} {
		dir := t.TempDir()
		usage := filepath.Join(dir, "usage.csv")
		text := "id,time,account,tariff,quantity\n" + record + strings.Repeat("nonsense\n", shownRejections+2)
		if err := os.WriteFile(usage, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := billing(t, "-in", usage, "-out", filepath.Join(dir, "report"))
		if r.status != cli.StatusDone || !strings.Contains(r.stdout, want) || strings.Count(r.stdout, "rejected: usage.csv:") != shownRejections {
			t.Errorf("with the record %q: got %+v, want %q", record, r, want)
		}
	}
}

func TestAFileThatIsNoUsageFileIsAnError(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	r := billing(t, "-in", "doc.go", "-out", filepath.Join(tmp, "report"))
	if r.status != cli.StatusFailed || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "doc.go") {
		t.Errorf("got %+v; want status %d and one line that names the file", r, cli.StatusFailed)
	}
	names(t, tmp)
}

func TestAReportWithoutBooksMakesNone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "books.db")
	r := billing(t, "report", "-books", path, "-out", filepath.Join(dir, "report"))
	if r.status != cli.StatusFailed || !strings.Contains(r.stderr, "there are no books") {
		t.Errorf("got %+v; want status %d and that there are no books", r, cli.StatusFailed)
	}
	names(t, dir)
}

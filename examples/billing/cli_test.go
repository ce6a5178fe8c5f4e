package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/examples/internal/cli"
)

// outcome is that of a run of the program.
type outcome struct {
	status         int
	stdout, stderr string
}

// billing runs the program in this process.
func billing(t *testing.T, args ...string) outcome {
	t.Helper()
	return billingUntil(t.Context(), args...)
}

func billingUntil(ctx context.Context, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	status := command(ctx, args, &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String()}
}

func TestInvalidCommandLinesAreOneLine(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"unknown"}, {"-unknown"}, {"-records", "0"}, {"-records", "x"}, {"-days", "0"}, {"-sla", "0s"}, {"-group", "0"},
		{"-in", ""}, {"-in", "missing.csv"}, {"-in", "."}, {"-in", "main.go", "-records", "5"}, {"-out", " "}, {"-tariffs", ""},
		{"ship", "-group", "5001"}, {"ship", "extra"}, {"ship", "-days", "-1"},
		{"initiator", "-visibility", "1s"}, {"initiator", "-account", "nowhere"}, {"worker", "-visibility", "2h"}, {"worker", "-blobs", ""},
		{"controller", "-account", "@missing"}, {"controller", "extra"}, {"controller", "-books", ""}, {"controller", "-group", "5"},
		{"report", "-sla", "-5s"}, {"report", "-out", ""},
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
	for _, flag := range []string{"-in", "-records", "-days", "-seed", "-tariffs", "-out", "-sla", "-group"} {
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
	if testing.Short() {
		t.Skip("waits for retries")
	}
	e, err := must(emulator.New(nil, nil)).Start("")
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
	for _, want := range []string{"generating 5,000 records of 5 days", "report.html",
		"5 with 5,000 records: 5,000 are billed, 0 rejected", "latency of a batch", "of the SLA", "one message a record would take 30,000"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("output: got %q, want %q in it", r.stdout, want)
		}
	}
	names(t, tmp)
	names(t, dir, "billing-report")
	names(t, filepath.Join(dir, "billing-report"), "batches.csv", "rejections.csv", "report.html", "totals.csv")
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

const usageHeader = "id,time,account,tariff,quantity\n"

// Each line that cannot be billed is named with file, line and reason, and the others are billed. After the lines are
// corrected in rejections.csv, that file is shipped as it is.
func TestRejectedLinesAreListedCorrectedAndBilled(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("bills several batches")
	}
	dir := t.TempDir()
	usage, out := filepath.Join(dir, "usage.csv"), filepath.Join(dir, "report")
	write(t, usage, usageHeader+`A1,2026-11-02T10:00:00Z,DE-1,electricity-de,10
A2,2026-11-02T11:00:00Z,+49 170 1234567,no-such-tariff,10
A1,2026-11-02T12:00:00Z,DE-1,electricity-de,10
A3,2026-11-02T13:00:00Z,DE-1,electricity-de,-4
A4,2026-11-02T13:00:00Z,DE-1,electricity-de,9999999999999999
A5,2026-11-02T13:00:00Z,DE-1
A6,2026-11-02T14:00:00Z,DE-1,electricity-de,20
`)
	r := billing(t, "-in", usage, "-out", out)
	if r.status != cli.StatusDone || !strings.Contains(r.stdout, "1 with 7 records: 2 are billed, 5 rejected") {
		t.Fatalf("got %+v, want 2 billed and 5 rejected", r)
	}
	got := strings.Join(rows(t, filepath.Join(out, "rejections.csv")), "\n")
	batch := regexp.MustCompile(`usage-[0-9a-f]{16}`).FindString(got)
	want := strings.ReplaceAll(`id,time,account,tariff,quantity,reason,batch,file,line,billed_in,text
A2,2026-11-02T11:00:00Z,'+49 170 1234567,no-such-tariff,10,"there is no tariff ""no-such-tariff""",BATCH,usage.csv,3,,
A1,2026-11-02T12:00:00Z,DE-1,electricity-de,10,the id A1 is on an earlier line of this batch,BATCH,usage.csv,4,BATCH,
A3,2026-11-02T13:00:00Z,DE-1,electricity-de,'-4,"quantity ""-4"" is negative",BATCH,usage.csv,5,,
A4,2026-11-02T13:00:00Z,DE-1,electricity-de,9999999999999999,"quantity ""9999999999999999"" is more than 1000000000000",BATCH,usage.csv,6,,
,,,,,"the line has 3 fields, the header 5",BATCH,usage.csv,7,,"A5,2026-11-02T13:00:00Z,DE-1"`, "BATCH", batch)
	if got != want {
		t.Errorf("rejections: got\n%s\nwant\n%s", got, want)
	}
	for _, line := range []string{"3: there is", "5: quantity", "6: quantity", "7: the line"} {
		if !strings.Contains(r.stdout, "usage.csv:"+line) {
			t.Errorf("output: got %s, want line %s", r.stdout, line)
		}
	}
	corrected := strings.NewReplacer("no-such-tariff,10", "electricity-de,10", "'-4,", "4,").Replace(got)
	write(t, filepath.Join(dir, "corrected.csv"), corrected)
	r = billing(t, "-in", usage, "-in", filepath.Join(dir, "corrected.csv"), "-out", out)
	if !strings.Contains(r.stdout, "2 with 12 records: 4 are billed, 8 rejected") {
		t.Errorf("after the correction: got %+v, want 4 billed", r)
	}
	if batches := strings.Join(rows(t, filepath.Join(out, "totals.csv")), "\n"); !strings.Contains(batches, "\n'+49 170 1234567,electricity-de,EUR,1,10,3.12") {
		t.Errorf("totals: got %s, want the account of the corrected line as it was", batches)
	}
}

// What is not shown is in the report. If no line can be billed, the program says so and fails.
func TestAFileOfWhichNoLineCanBeBilledFails(t *testing.T) {
	t.Parallel()
	for record, status := range map[string]int{"": cli.StatusFailed, "A1,2026-11-02T10:00:00Z,DE-1,electricity-de,10\n": cli.StatusDone} {
		dir := t.TempDir()
		usage := filepath.Join(dir, "usage.csv")
		write(t, usage, usageHeader+record+strings.Repeat("nonsense\n", shownRejections+2))
		r := billing(t, "-in", usage, "-out", filepath.Join(dir, "report"))
		if r.status != status || !strings.Contains(r.stdout, "12 rejected") || !strings.Contains(r.stdout, "rejected: 2 lines more; rejections.csv") ||
			(status == cli.StatusFailed) != strings.Contains(r.stderr, "none of the 12 lines was billed") {
			t.Errorf("with the record %q: got %+v, want status %d", record, r, status)
		}
		if n := len(rows(t, filepath.Join(dir, "report", "rejections.csv"))); n != shownRejections+3 {
			t.Errorf("rejections.csv: got %d lines, want every rejected one", n)
		}
	}
}

// Late records are billed, and records that come again, in whichever file and layout, are not.
func TestLateRecordsAreBilledAndRepeatedOnesAreNot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, late, again := filepath.Join(dir, "first.csv"), filepath.Join(dir, "late.csv"), filepath.Join(dir, "again.csv")
	write(t, first, usageHeader+"A1,2026-11-02T10:00:00Z,DE-1,electricity-de,10\nA2,2026-11-02T11:00:00Z,DE-1,electricity-de,10\n")
	write(t, late, usageHeader+"A3,2026-11-02T12:00:00Z,DE-1,electricity-de,10\n")
	write(t, again, "tariff,id,time,account,quantity\nelectricity-de,A2,2026-11-02T11:00:00Z,DE-1,10\n")
	r := billing(t, "-in", first, "-in", late, "-in", first, "-in", again, "-out", filepath.Join(dir, "report"))
	for _, want := range []string{"3 with 4 records: 3 are billed, 1 rejected", "9.36, for 3 records", "1 line of an id that is billed"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("got %+v, want %q", r, want)
		}
	}
}

func TestAFileThatIsNoUsageFileIsAnError(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	r := billing(t, "-in", "main.go", "-out", filepath.Join(tmp, "report"))
	if r.status != cli.StatusFailed || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "main.go") {
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

package main

import (
	"encoding/csv"
	"flag"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/internal/replay"
)

// startScale starts a small flood. Its temporary files are in tmp.
func startScale(t *testing.T, tmp string, args ...string) *process {
	t.Helper()
	return run(t, os.Args[0], []string{asBilling + "=1", "TMPDIR=" + tmp, "GORACE=atexit_sleep_ms=0"},
		append([]string{"scale", "-days", "3", "-group", "20", "-work", "20ms", "-sla", "10m"}, args...)...)
}

// Workers come with the flood, everything is billed exactly, and neither a process nor a file is left but the results.
//
//
func TestAFloodUnderTheAgent(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	tmp, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	p := startScale(t, tmp, "-short", "-records", "6000", "-out", out)
	if status := p.wait(); status != cli.StatusDone {
		t.Fatalf("status: got %d: %s", status, p.out.String())
	}
	if came := p.find(`s  0 → ([0-9]+): `); came < "1" {
		t.Errorf("workers that came first: got %s, want some", came)
	}
	for _, want := range []string{"3 with 6,000 records: 6,000 are billed, 0 rejected",
		"0 at the end; 0 ended by themselves, 0 were killed"} {
		if !strings.Contains(p.out.String(), want) {
			t.Errorf("output: got %q, want %q in it", p.out.String(), want)
		}
	}
	names(t, tmp)
	names(t, out, "batches.csv", "rejections.csv", "report.html", "totals.csv")
	if got, want := rows(t, filepath.Join(out, "totals.csv"))[1:], straight(t, records.Generate(1, 6000, 3)); !slices.Equal(got, want) {
		t.Errorf("totals: got %d rows %.300q, want those of a straight computation, %d rows %.300q", len(got), got, len(want), want)
	}
	noneWorks(t, tmp)
}

// straight computes the rows of totals.csv in one loop.
func straight(t *testing.T, all iter.Seq[records.Record]) (rows []string) {
	t.Helper()
	sums := make(map[books.Key]books.Sum)
	for r := range all {
		currency, amount, err := records.BuiltInTariffs().Charge(&r)
		if err != nil {
			t.Fatal(err)
		}
		key := books.Key{Account: r.Account, Tariff: r.Tariff, Currency: currency}
		sums[key] = sums[key].Plus(books.Sum{Records: 1, Quantity: r.Quantity, Amount: amount})
	}
	for key, sum := range sums {
		var b strings.Builder
		w := csv.NewWriter(&b)
		if err := w.Write([]string{key.Account, key.Tariff, key.Currency, fmt.Sprint(sum.Records), sum.Quantity.String(), records.FormatAmount(key.Currency, sum.Amount)}); err != nil {
			t.Fatal(err)
		}
		w.Flush()
		rows = append(rows, strings.TrimSpace(b.String()))
	}
	slices.SortFunc(rows, func(a, b string) int { return strings.Compare(strings.Trim(a, `"`), strings.Trim(b, `"`)) })
	return rows
}

// Ctrl-C in the middle leaves neither a process nor a file.
func TestAFloodThatIsInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel()
	tmp, dir := t.TempDir(), t.TempDir()
	p := startScale(t, tmp, "-records", "60000", "-out", filepath.Join(dir, "out"))
	p.until(`s  0 → [0-9]+: `)
	azuritetest.Until(t, "workers work", func() bool { return len(working(t, tmp)) > 0 })
	p.signal(os.Interrupt)
	if status := p.wait(); status != cli.StatusFailed || !strings.HasSuffix(p.out.String(), "\nbilling: "+errStopped.Error()+"\n") {
		t.Errorf("got status %d, %q; want %d and %v", status, p.out.String(), cli.StatusFailed, errStopped)
	}
	names(t, tmp)
	names(t, dir)
	noneWorks(t, tmp)
}

// working returns the processes of workers with this temporary folder, where the system shows them.
func working(t *testing.T, tmp string) (pids []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[1-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(line), "\x00worker\x00") && strings.Contains(string(line), "\x00"+tmp+"/") {
			pids = append(pids, filepath.Base(filepath.Dir(path)))
		}
	}
	return pids
}

func noneWorks(t *testing.T, tmp string) {
	t.Helper()
	if pids := working(t, tmp); len(pids) > 0 {
		t.Errorf("processes that are left: got %v, want none", pids)
	}
}

// The default flood in simulated time: workers are added while it rises, none when half of it is done, and they are busy for more
// than half of the time for which they are there.
//
//
func TestTheFloodSuitsTheAgent(t *testing.T) {
	t.Parallel()
	s := &scale{}
	s.flags(flag.NewFlagSet("scale", flag.ContinueOnError))
	p := s.policy()
	items := float64(s.records / s.group)
	trace := replay.Trace{
		Name: "flood", Step: time.Second, Arrivals: make([]float64, 180), Handling: p.Handling, Slots: p.Slots, Start: p.Start, SLA: s.sla, Max: p.Max,
	}
	for second := range 6 { // as fast as the initiator is
		trace.Arrivals[2+second] = items / 6
	}
	rule := replay.Agent("scale", p)
	rule.Interval, rule.Beacon = time.Second, time.Second
	result, err := replay.Run(trace, rule)
	if err != nil {
		t.Fatal(err)
	}
	n, done, lateGrowth := 0, 0.0, 0
	last := time.Duration(0)
	for _, point := range result.Timeline {
		done += point.Service * (point.At - last).Seconds()
		if point.Instances > n && done > items/2 {
			lateGrowth++
		}
		n, last = point.Instances, point.At
	}
	work, there := items*p.Handling.Seconds()/float64(p.Slots), result.InstanceHours*3600
	t.Logf("%.0f items, %.0f worker-seconds of work in %.0f, %d changes, the last item after %v", items, work, there, result.Changes, result.Worst)
	if result.Late > 0 || lateGrowth > 0 || n > 0 || work < there/2 || math.Abs(done-items) > 1 {
		t.Errorf("got %.0f late, %d additions when half was done, %d workers at the end, %.0f of %.0f worker-seconds busy, %.0f done of %.0f; want none, none, none, half, all",
			result.Late, lateGrowth, n, work, there, done, items)
	}
}

func TestScaleRefusesBadFlags(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"-group 0": "-group 0", "-max 0": "-max 0", "-max 101": "-max 101", "-work -1s": "-work -1s", "-work 2m": "-work 2m",
		"-sla 0s": "-sla 0s", "-records 0": "-records 0", "more": "more",
	} {
		r := billing(t, append([]string{"scale"}, strings.Fields(flags)...)...)
		if r.status != cli.StatusUsage || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: got %+v, want status %d and the flag", flags, r, cli.StatusUsage)
		}
	}
	if r := billing(t, "worker", "-beacon", "1ms"); r.status != cli.StatusUsage || !strings.Contains(r.stderr, "-beacon 1ms") {
		t.Errorf("got %+v, want status %d and the flag", r, cli.StatusUsage)
	}
}

// A worker that is killed is started again, and the books are right all the same.
func TestAFloodInWhichAWorkerIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the lease of a killed worker")
	}
	t.Parallel()
	tmp, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	p := startScale(t, tmp, "-short", "-records", "3000", "-work", "100ms", "-visibility", "5s", "-max", "1", "-out", out)
	var pids []string
	azuritetest.Until(t, "a worker works", func() bool { pids = working(t, tmp); return len(pids) == 1 })
	pid := 0
	if _, err := fmt.Sscan(pids[0], &pid); err != nil {
		t.Fatal(err)
	}
	p.until(`s  0 → `)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if status := p.wait(); status != cli.StatusDone {
		t.Fatalf("status: got %d: %s", status, p.out.String())
	}
	if !regexp.MustCompile(`3,000 are billed, 0 rejected\n(?s:.*)0 at the end; [1-9]\d* ended by themselves, 0 were killed`).MatchString(p.out.String()) {
		t.Errorf("output: got %q, want the kill, and the right totals", p.out.String())
	}
	noneWorks(t, tmp)
}

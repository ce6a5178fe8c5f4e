package main

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	playRole() // servers and workers of the tests are this program too
	flag.Parse()
	os.Exit(m.Run())
}

// short is what makes a run take almost no time.
var short = []string{"-rates", "1:1ms,200:300ms", "-rounds", "2", "-round-trips", "3", "-warm-up", "4"}

// TestEveryTransportIsMeasured: the table, the page and the plot have every transport at every rate, and
// every job was handled.
func TestEveryTransportIsMeasured(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.Mkdir(filepath.Join(filepath.Dir(page), "images"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(page, []byte("before\n"+pageBegins+"old\n"+pageEnds+"after\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := run(t.Context(), append(short, "-page", page), &table, io.Discard); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
	jobs := 0
	for round := range 2 {
		jobs += len(schedule(200, 300*time.Millisecond, 1+uint64(round)))
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := os.ReadFile(filepath.Join(filepath.Dir(page), "images", "latency.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range transports {
		for _, want := range []string{fmt.Sprintf("\n| 1 | %v | %d | 2 | ", how, how.processes), fmt.Sprintf("\n| 200 | %v | %d | %d | ", how, how.processes, jobs)} {
			if !strings.Contains(table.String(), want) || !strings.Contains(string(text), want) {
				t.Errorf("got the table\n%s\nand the page\n%s\nwant %q in both", table.String(), text, want)
			}
		}
		if n := strings.Count(string(drawn), how.title()+"<"); n != 2 {
			t.Errorf("plot: got %d rows of %v, want 2", n, how)
		}
	}
	if !strings.HasPrefix(string(text), "before\n") || !strings.HasSuffix(string(text), "\nafter\n") || strings.Contains(string(text), "old") {
		t.Errorf("page: got\n%s\nwant only what is between the marks replaced", text)
	}
}

func TestThePlotIsWellFormed(t *testing.T) {
	var results []*result
	for _, r := range []float64{1, 100} {
		for _, how := range transports {
			results = append(results, &result{rate: rate{r, time.Second}, transport: how, waits: []time.Duration{-time.Second, time.Millisecond, time.Minute}, late: []time.Duration{0}, trips: []time.Duration{1}})
		}
	}
	drawn := plot(results)
	for d := xml.NewDecoder(strings.NewReader(drawn)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, drawn)
		}
	}
	if strings.Contains(drawn, "%!") || strings.Contains(drawn, "NaN") {
		t.Errorf("plot: got\n%s", drawn)
	}
	for _, c := range []struct {
		d    time.Duration
		want float64
	}{{-1, plotLeft}, {shortest, plotLeft}, {longest, plotRight}, {time.Hour, plotRight}} {
		if got := position(c.d); got != c.want {
			t.Errorf("position of %v: got %v, want %v", c.d, got, c.want)
		}
	}
	if got := position(10*time.Millisecond) - position(time.Millisecond); got < 127.9 || got > 128.1 {
		t.Errorf("ten times: got %v pixels, want 128", got)
	}
}

// TestTheVerdictIsOfTheSlowestWokenRow: polling does not count, and what counts is what is beyond a round trip.
func TestTheVerdictIsOfTheSlowestWokenRow(t *testing.T) {
	of := func(wakes bool, waits ...time.Duration) *result {
		return &result{transport: transport{wakes: wakes}, waits: waits, trips: []time.Duration{2 * time.Millisecond}}
	}
	got := verdict([]*result{of(false, time.Hour), of(true, 3*time.Millisecond, 4*time.Millisecond), of(true, time.Millisecond, 9*time.Millisecond)})
	if !strings.Contains(got, "at most 1.00 ms (p50 of both) and 7.00 ms (p99 of both)") {
		t.Errorf("verdict: got %q, want 1 and 7 ms", got)
	}
	if got := verdict([]*result{of(false, 1)}); got != "" {
		t.Errorf("verdict of polling: got %q, want none", got)
	}
}

func TestPercentilesAreOfTheNearestRank(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for _, c := range []struct {
		sorted  []time.Duration
		percent int
		want    time.Duration
	}{{hundred, 50, 50}, {hundred, 95, 95}, {hundred, 99, 99}, {hundred, 100, 100}, {hundred[:1], 50, 1}, {hundred[:1], 99, 1}, {hundred[:3], 50, 2}, {hundred[:10], 99, 10}} {
		if got := percentile(c.sorted, c.percent); got != c.want {
			t.Errorf("%d %% of %d: got %d, want %d", c.percent, len(c.sorted), got, c.want)
		}
	}
}

// TestTheScheduleIsTheSameForAll: it depends only on the seed, is in order, and has about as many jobs as asked
// for.
func TestTheScheduleIsTheSameForAll(t *testing.T) {
	due := schedule(1000, 10*time.Second, 7)
	if !slices.Equal(due, schedule(1000, 10*time.Second, 7)) || slices.Equal(due, schedule(1000, 10*time.Second, 8)) {
		t.Error("got another schedule for the same seed, or the same for another")
	}
	if n := len(due); n < 9500 || n > 10_500 || !slices.IsSorted(due) || due[n-1] >= 10*time.Second {
		t.Errorf("got %d jobs up to %v, want about 10,000 in 10 s", n, due[n-1])
	}
	if one := schedule(0.001, time.Millisecond, 1); len(one) != 1 || one[0] > time.Millisecond {
		t.Errorf("a window that is too short: got %v, want one job in it", one)
	}
}

// TestAnotherProcessReadsTheSameClock: its readings lie between ours.
func TestAnotherProcessReadsTheSameClock(t *testing.T) {
	server, at, err := startServers()
	if err != nil {
		t.Fatal(err)
	}
	defer server.stop()
	how := transports[0]
	a := assignment{Servers: at, Transport: how.name, Queue: "clock", Jobs: 1}
	s, err := newSender(t.Context(), a, how)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	c, err := startRemote(a)
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	before := now()
	if _, err := s.send(t.Context(), 0, []time.Duration{0}); err != nil {
		t.Fatal(err)
	}
	begun, err := c.starts(t.Context(), 1)
	if after := now(); err != nil || begun[0] < before || begun[0] > after {
		t.Errorf("a handler in another process: got %v, %v; want it between %d and %d", begun, err, before, after)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for _, args := range [][]string{{"-transports", "pigeon"}, {"-rates", "100"}, {"-rates", "NaN:1s"}, {"-rates", "0:1s"}, {"-rates", "1:0s"}, {"-rounds", "0"}, {"-warm-up", "0"}, {"-round-trips", "0"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v: got no error, want one", args)
		}
	}
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("no marks\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writePage(page, "table", ""); err == nil || !strings.Contains(err.Error(), "latency: end") {
		t.Errorf("a page without marks: got %v, want an error that names them", err)
	}
}

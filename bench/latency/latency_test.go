package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/bench/internal/report/reporttest"
	"github.com/millrace/millrace/bench/internal/schedule"
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
	page := reporttest.NewPage(t, "latency")
	var table strings.Builder
	if err := run(t.Context(), append(short, "-page", page.Path), &table, io.Discard); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
	jobs := 0
	for round := range 2 {
		jobs += len(schedule.Random(200, 300*time.Millisecond, 1+uint64(round)))
	}
	text, drawn := page.Read(t)
	for _, how := range transports {
		for _, want := range []string{fmt.Sprintf("\n| 1 | %v | %d | 2 | ", how, how.processes), fmt.Sprintf("\n| 200 | %v | %d | %d | ", how, how.processes, jobs)} {
			if !strings.Contains(table.String(), want) || !strings.Contains(text, want) {
				t.Errorf("got the table\n%s\nand the page\n%s\nwant %q in both", table.String(), text, want)
			}
		}
		if n := strings.Count(drawn, how.title()+"<"); n != 2 {
			t.Errorf("plot: got %d rows of %v, want 2", n, how)
		}
	}
}

func TestThePlotIsWellFormed(t *testing.T) {
	var results []*result
	for _, r := range []float64{1, 100} {
		for _, how := range transports {
			results = append(results, &result{rate: rate{r, time.Second}, transport: how, waits: []time.Duration{-time.Second, time.Millisecond, time.Minute}, late: []time.Duration{0}, trips: []time.Duration{1}})
		}
	}
	reporttest.WellFormed(t, plot(results))
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
}

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
	if os.Getenv(serverVariable) != "" { // the servers of the tests are this program too
		os.Exit(serve(os.Stdin, os.Stdout, os.Stderr))
	}
	flag.Parse()
	os.Exit(m.Run())
}

// short is what makes a run take almost no time.
var short = []string{"-slots", "8", "-reserve", "2", "-heavy", "200ms", "-critical", "1ms", "-rate", "200", "-window", "100ms", "-rounds", "2", "-warm-up", "4"}

// TestEveryRowIsMeasured: the table, the page and the plot have every row, and every job was handled.
func TestEveryRowIsMeasured(t *testing.T) {
	page := reporttest.NewPage(t, "pickup")
	var table strings.Builder
	if err := run(t.Context(), append(short, "-page", page.Path), &table, io.Discard); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
	jobs := 0
	for round := range 2 {
		jobs += len(schedule.Random(200, 100*time.Millisecond, 1+uint64(round)))
	}
	text, drawn := page.Read(t)
	for _, how := range []string{"a reserve of 2", "weights alone"} {
		for _, beside := range []string{"nothing", "a flood"} {
			want := fmt.Sprintf("\n| %s | %s | %d | ", how, beside, jobs)
			if !strings.Contains(table.String(), want) || !strings.Contains(text, want) {
				t.Errorf("got the table\n%s\nand the page\n%s\nwant %q in both", table.String(), text, want)
			}
		}
	}
	if n := strings.Count(drawn, "<polyline"); n != 4 {
		t.Errorf("plot: got %d curves, want 4", n)
	}
}

// made returns results with these 99th percentiles, in the order of the rows.
func made(p99s ...time.Duration) []*result {
	var results []*result
	for i, r := range rows {
		results = append(results, &result{row: r, pickups: []time.Duration{0, p99s[i]}, late: []time.Duration{0}, heavy: 7})
	}
	return results
}

// TestTheVerdictIsOfTheReserve: the flood without a reserve does not count, nor do rows without a flood.
func TestTheVerdictIsOfTheReserve(t *testing.T) {
	const ms = time.Millisecond
	for want, results := range map[string][]*result{
		"2.0 times as long, which is within 2 times":    made(10*ms, 20*ms, 1*ms, 900*ms),
		"2.1 times as long, which is more than 2 times": made(10*ms, 21*ms, 1*ms, 1*ms),
	} {
		if got := verdict(results); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := verdict(made(ms, ms, ms, ms)[2:]); got != "" {
		t.Errorf("without a row with a reserve: got %q, want nothing", got)
	}
	table := plan{slots: 8, reserve: 2}.writeTable(made(10*ms, 20*ms, 3*ms, 90*ms))
	if strings.Count(table, "| × ") != 2 || !strings.Contains(table, "× 30.0") {
		t.Errorf("got\n%s\nwant the ratio in the rows with a flood", table)
	}
}

func TestThePlotIsWellFormed(t *testing.T) {
	results := made(-time.Second, time.Millisecond, time.Minute, 0)
	results[0].pickups = make([]time.Duration, 10*points)
	drawn := plan{}.plot(results)
	reporttest.WellFormed(t, drawn)
	if len(drawn) > 40_000 {
		t.Errorf("plot: got %d bytes\n%s", len(drawn), drawn)
	}
	if height(0) != plotBottom || height(1) != plotTop {
		t.Errorf("heights of 0 and 1: got %v and %v, want %v and %v", height(0), height(1), plotBottom, plotTop)
	}
}

// A plan whose critical load does not fit its reserve would measure something else.
func TestMistakesAreNamed(t *testing.T) {
	for _, args := range [][]string{
		{"-rounds", "0"}, {"-warm-up", "0"}, {"-window", "0s"}, {"-heavy", "0s"}, {"-critical", "-1s"}, {"-rate", "0"}, {"-rate", "NaN"},
		{"-reserve", "0"}, {"-reserve", "63"}, {"-reserve", "4", "-rate", "1000", "-critical", "5ms"}, {"-colour"},
	} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v: got no error, want one", args)
		}
	}
	if err := run(t.Context(), []string{"-h"}, io.Discard, io.Discard); err != nil {
		t.Errorf("-h: got %v, want no error", err)
	}
}

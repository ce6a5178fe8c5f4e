package main

import (
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	serveIfAsked() // the server of the tests is this program too
	flag.Parse()
	os.Exit(m.Run())
}

// short is what makes a run take almost no time.
var short = []string{"-shards", "1,3", "-rounds", "2", "-warm-up", "0", "-for", "200ms", "-under-way", "8"}

// TestEveryNumberOfShardsIsMeasured: the table, the page and the plot have every number of shards.
func TestEveryNumberOfShardsIsMeasured(t *testing.T) {
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
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := os.ReadFile(filepath.Join(filepath.Dir(page), "images", "shards.svg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n| 1 | ", "\n| 3 | ", "shards"} {
		if !strings.Contains(table.String(), want) || !strings.Contains(string(text), want) {
			t.Errorf("got the table\n%s\nand the page\n%s\nwant %q in both", table.String(), text, want)
		}
	}
	if n := strings.Count(string(drawn), "<circle"); n != 2 {
		t.Errorf("plot: got %d points, want 2", n)
	}
	if !strings.HasPrefix(string(text), "before\n") || !strings.HasSuffix(string(text), "\nafter\n") || strings.Contains(string(text), "old") {
		t.Errorf("page: got\n%s\nwant only what is between the marks replaced", text)
	}
}

// TestTheLimitHolds: no more than a third of the limit comes from sending to deleting, but for what an
// unused queue has saved for its first second.
func TestTheLimitHolds(t *testing.T) {
	const limit, shards = 60, 2
	p := plan{shards: []int{shards}, limit: limit, window: 64, rounds: 1, span: 2 * time.Second}
	s, err := startServer(limit)
	if err != nil {
		t.Fatal(err)
	}
	results, err := p.measure(t.Context(), s, io.Discard)
	if err = errors.Join(err, s.stop()); err != nil {
		t.Fatal(err)
	}
	taken := results[0].rounds[0]
	// A get may leave a debt of a batch, and beside the window there is the time that starting takes.
	most := shards * (limit*(taken.wall.Seconds()+5) + 3*32) / 3
	if float64(taken.jobs) > most || taken.limited == 0 {
		t.Errorf("got %d jobs in %v, %d requests refused; want at most %.0f jobs, and some refused", taken.jobs, taken.wall, taken.limited, most)
	}
}

func TestThePlotIsWellFormed(t *testing.T) {
	for _, limit := range []int{0, 2000} {
		p := plan{limit: limit}
		results := []*result{{1, []sample{{jobs: 600, wall: time.Second, processor: time.Second}}}, {8, []sample{{jobs: 900, wall: time.Second}}}}
		drawn := p.plot(results)
		for d := xml.NewDecoder(strings.NewReader(drawn)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%v in\n%s", err, drawn)
			}
		}
		if strings.Contains(drawn, "%!") || strings.Contains(drawn, "NaN") || strings.Contains(drawn, "Inf") {
			t.Errorf("limit %d: got\n%s", limit, drawn)
		}
	}
}

// TestTheVerdict says how far the throughput grows, and why no further.
func TestTheVerdict(t *testing.T) {
	of := func(k, jobs int, processor time.Duration) *result {
		return &result{k, []sample{{jobs: int64(jobs), wall: time.Second, processor: processor}}}
	}
	for _, c := range []struct {
		results []*result
		want    string
	}{
		{[]*result{of(1, 100, 0), of(2, 190, 0), of(4, 360, 0)}, "Up to 4 shards, all that were measured"},
		{[]*result{of(1, 100, 0), of(2, 190, 0), of(4, 350, 0)}, "Up to 2 shards each adds 0.9 of one at least; 4 shards give 0.88 of 4 times one, although"},
		{[]*result{of(1, 100, 0), of(4, 300, time.Hour)}, "Up to 1 shards each adds 0.9 of one at least; 4 shards give 0.75 of 4 times one, because the processors"},
		{[]*result{of(2, 200, 0), of(4, 400, 0)}, "Up to 4 shards"},
	} {
		if got := verdict(c.results); !strings.HasPrefix(got, c.want) {
			t.Errorf("got %q, want %q …", got, c.want)
		}
	}
}

func TestMediansAreOfTheRounds(t *testing.T) {
	for _, c := range []struct {
		jobs []int64
		want float64
	}{{[]int64{5}, 5}, {[]int64{9, 1, 5}, 5}, {[]int64{4, 2}, 3}} {
		r := &result{shards: 1}
		for _, n := range c.jobs {
			r.rounds = append(r.rounds, sample{jobs: n, wall: time.Second})
		}
		if got := r.median(sample.perSecond); got != c.want {
			t.Errorf("%v: got %v, want %v", c.jobs, got, c.want)
		}
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for _, args := range [][]string{{"-shards", "0"}, {"-shards", "2,1"}, {"-shards", "1,1"}, {"-shards", "many"}, {"-shards", "65"}, {"-rounds", "0"}, {"-for", "0"}, {"-limit", "-1"}, {"-under-way", "0"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v: got no error, want one", args)
		}
	}
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("no marks\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writePage(page, "table", ""); err == nil || !strings.Contains(fmt.Sprint(err), "shards: end") {
		t.Errorf("a page without marks: got %v, want an error that names them", err)
	}
}

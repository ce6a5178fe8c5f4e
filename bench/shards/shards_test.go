package main

import (
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/bench/internal/report/reporttest"
	"github.com/millrace/millrace/internal/waiting"
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
	page := reporttest.NewPage(t, "shards")
	var table strings.Builder
	if err := run(t.Context(), append(short, "-page", page.Path), &table, io.Discard); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
	text, drawn := page.Read(t)
	for _, want := range []string{"\n| 1 | ", "\n| 3 | ", "shards"} {
		if !strings.Contains(table.String(), want) || !strings.Contains(text, want) {
			t.Errorf("got the table\n%s\nand the page\n%s\nwant %q in both", table.String(), text, want)
		}
	}
	if n := strings.Count(drawn, "<circle"); n != 2 {
		t.Errorf("plot: got %d points, want 2", n)
	}
}

// TestTheLimitHolds: no more than a third of the limit comes from sending to deleting, but for what an
// unused queue has saved for its first second. It goes on until the limit has refused requests and let jobs through, however
// slow the machine is.
func TestTheLimitHolds(t *testing.T) {
	const limit, shards = 15, 2
	s, err := startServer(limit)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	w, err := startWork(t.Context(), s.location, shards, 64)
	if err != nil {
		t.Fatal(errors.Join(err, s.stop()))
	}
	var seen sample
	most := 0.0
	for err == nil && (seen.jobs == 0 || seen.limited == 0) && float64(seen.jobs) <= most {
		waiting.For(100*time.Millisecond, t.Context().Done())
		seen, err = look(w, s)
		most = shards * (limit*(time.Since(begin).Seconds()+1) + 3*32) / 3 // a get may leave a debt of a batch
	}
	if err = errors.Join(err, w.stop(), s.stop()); err != nil {
		t.Fatal(err)
	}
	if float64(seen.jobs) > most {
		t.Errorf("got %d jobs, %d requests refused; want at most %.0f jobs", seen.jobs, seen.limited, most)
	}
}

func TestThePlotIsWellFormed(t *testing.T) {
	for _, limit := range []int{0, 2000} {
		p := plan{limit: limit}
		results := []*result{{1, []sample{{jobs: 600, wall: time.Second, processor: time.Second}}}, {8, []sample{{jobs: 900, wall: time.Second}}}}
		reporttest.WellFormed(t, p.plot(results))
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
}

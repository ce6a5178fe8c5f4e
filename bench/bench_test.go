package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	serveIfAsked() // the server of the tests is this program too
	flag.Parse()
	os.Exit(m.Run())
}

// short is a plan that takes almost no time.
func short(contenders ...contender) plan {
	return plan{
		handlers: []time.Duration{0, 20 * time.Millisecond}, latencies: []time.Duration{0}, secure: []bool{false, true}, concurrency: []int{64},
		contenders: contenders, only: regexp.MustCompile("handler20ms"), rounds: 1,
		warmUp: 20 * time.Millisecond, window: 100 * time.Millisecond, size: 128,
	}
}

// Every contender consumes messages, and the table shows it.
func TestEveryContenderWorks(t *testing.T) {
	p := short(contenders...)
	s, err := startServer(p.endpoints())
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	results, err := p.measure(t.Context(), s, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 2 {
		t.Fatalf("measured %+v", results)
	}
	for _, r := range results {
		if len(r.rounds) != 1 || len(r.rounds[0]) != len(contenders) {
			t.Fatalf("measured %+v", r)
		}
		for i, taken := range r.rounds[0] {
			if taken.messages <= 0 || taken.wall <= 0 || taken.processor <= 0 {
				t.Errorf("%v in %v: got %+v, want messages, time and allocations", contenders[i], r.cell, taken)
			}
		}
	}
	var table bytes.Buffer
	if err := writeTable(&table, results); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(table.String(), "\n"); lines != 2+2*len(contenders) || !strings.Contains(table.String(), "| TLS | 3200 | millrace |") {
		t.Errorf("table: got\n%s\nwant a row for each cell and contender", table.String())
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for _, args := range [][]string{{"-handlers", "x"}, {"-contenders", "nobody"}, {"-only", "("}, {"-concurrency", ""}, {"-tls", "perhaps"}} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%v: got no error, want one", args)
		}
	}
}

func TestMedian(t *testing.T) {
	r := result{}
	for _, n := range []int64{3, 1, 9} {
		r.rounds = append(r.rounds, []sample{{messages: 1, wall: time.Second}, {messages: n, wall: time.Second}})
	}
	if m := r.median(1, func(own, first sample) float64 { return own.perSecond() / first.perSecond() }); m != 3 {
		t.Errorf("median of 3, 1, 9: got %v, want 3", m)
	}
	r.rounds = r.rounds[:2]
	if m := r.median(1, func(own, _ sample) float64 { return own.perSecond() }); m != 2 {
		t.Errorf("median of 3, 1: got %v, want 2", m)
	}
}

// BenchmarkConsume runs the cell without waiting and with 64 handlers for 100 ms an iteration. It gives
// a first impression; to measure, run the program.
func BenchmarkConsume(b *testing.B) {
	p := short()
	s, err := startServer(p.endpoints())
	if err != nil {
		b.Fatal(err)
	}
	defer s.stop()
	for _, secure := range p.secure {
		for _, who := range contenders {
			c := cell{concurrency: 64, secure: secure}
			b.Run(c.wire()+"/"+who.name, func(b *testing.B) {
				var all sample
				const load = 20_000 // for limits: more than is done here
				for b.Loop() {
					taken, err := p.once(context.Background(), s, c, who, load)
					if err != nil {
						b.Fatal(err)
					}
					all = sample{all.messages + taken.messages, all.wall + taken.wall, all.processor + taken.processor, all.mallocs + taken.mallocs, all.heldBack + taken.heldBack}
				}
				b.ReportMetric(all.perSecond(), "messages/s")
				b.ReportMetric(float64(all.processor.Microseconds())/float64(all.messages), "client-µs/message")
				b.ReportMetric(float64(all.mallocs)/float64(all.messages), "allocs/message")
			})
		}
	}
}

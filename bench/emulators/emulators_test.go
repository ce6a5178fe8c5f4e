package main

import (
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	bareIfAsked() // that server is this program, too
	flag.Parse()
	status := m.Run()
	removeProgram()
	os.Exit(status)
}

// own are the servers that need nothing but Go.
const own = "memory,disk,bare"

func TestEveryWorkIsDone(t *testing.T) {
	var table strings.Builder
	args := []string{"-contenders", own, "-connections", "4", "-rounds", "1", "-for", "1ms", "-work", "enqueue,drain500"}
	if err := run(t.Context(), args, &table, io.Discard); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(table.String(), "\n"); lines != 2+2*3 || !strings.Contains(table.String(), "| drain500 | 4 | memory |") {
		t.Errorf("the table is\n%s", table.String())
	}
}

// TestADrainDeletes: drained messages are deleted from the queue.
func TestADrainDeletes(t *testing.T) {
	s, err := startMillrace(false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	c, err := open(t.Context(), s.location, 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.put(t.Context(), 300); err != nil {
		t.Fatal(err)
	}
	done, err := c.drain(t.Context(), 200)
	if err != nil || done < 200 || done > 300 {
		t.Fatalf("%d were drained, %v", done, err)
	}
	p, err := c.queue.GetProperties(t.Context(), nil)
	if err != nil || *p.ApproximateMessagesCount != 300-done {
		t.Errorf("%d of 300 are left after %d, %v", *p.ApproximateMessagesCount, done, err)
	}
}

func TestMistakesAreNamed(t *testing.T) {
	for _, args := range [][]string{{"-contenders", "nobody"}, {"-work", "sleep"}, {"-connections", "x"}, {"-connections", "0"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

func TestMedian(t *testing.T) {
	r := result{}
	for _, n := range []int64{3, 1, 9} {
		r.rounds = append(r.rounds, []sample{{messages: n, wall: time.Second}})
	}
	if m := r.median(func(all []sample) float64 { return all[0].perSecond() }); m != 3 {
		t.Errorf("median of 3, 1, 9 is %v", m)
	}
}

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
	bareIfAsked() // the bare server is this program too
	flag.Parse()
	status := m.Run()
	removeProgram()
	os.Exit(status)
}

// own are the servers that need only Go.
const own = "memory,disk,bare"

func TestEveryWorkIsDone(t *testing.T) {
	var table strings.Builder
	args := []string{"-contenders", own, "-connections", "4", "-rounds", "1", "-for", "1ms", "-work", "enqueue,drain500"}
	if err := run(t.Context(), args, &table, io.Discard); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(table.String(), "\n"); lines != 2+2*3 || !strings.Contains(table.String(), "| drain500 | 4 | memory |") {
		t.Errorf("table: got\n%s\nwant a row for each server and kind of work", table.String())
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
		t.Fatalf("drained: got %d, %v; want 200 to 300", done, err)
	}
	p, err := c.queue.GetProperties(t.Context(), nil)
	if err != nil || *p.ApproximateMessagesCount != 300-done {
		t.Errorf("messages left: got %d, %v; want %d", *p.ApproximateMessagesCount, err, 300-done)
	}
}

func TestInvalidFlagsAreErrors(t *testing.T) {
	for _, args := range [][]string{{"-contenders", "nobody"}, {"-work", "sleep"}, {"-connections", "x"}, {"-connections", "0"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v: got no error, want one", args)
		}
	}
}

func TestMedian(t *testing.T) {
	r := result{}
	for _, n := range []int64{3, 1, 9} {
		r.rounds = append(r.rounds, []sample{{messages: n, wall: time.Second}})
	}
	if m := r.median(func(all []sample) float64 { return all[0].perSecond() }); m != 3 {
		t.Errorf("median of 3, 1, 9: got %v, want 3", m)
	}
}

//go:build unix

package millrace_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTwoWorkerProcessesAreWokenAndDoNotPoll runs millrace serve, two workers of the README and a producer, and reads
// from the server's own log how many dequeues idle time and bursts have cost.
func TestTwoWorkerProcessesAreWokenAndDoNotPoll(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds two programs")
	}
	s := openShells(t)
	if out, err := s.command(t.Context(), "go build -o "+s.bin+" ./examples/firstjob").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	begin := time.Now()
	s.server = s.start(t, serveCommand+" -addr 127.0.0.1:0 -log")
	s.location = s.server.readField(t, "connection string")
	shipped := make(chan string, 1000)
	for range 2 {
		w := s.start(t, "firstjob")
		w.expect(t, "2026/11/22 00:28:47 INFO listening queue=devstoreaccount1/orders concurrency=64 loops_min=0 loops_max=2 poison=devstoreaccount1/orders-poison")
		go func() {
			for w.lines.Scan() {
				if _, order, ok := strings.Cut(w.lines.Text(), "shipped order="); ok {
					shipped <- order
				}
			}
		}()
	}
	put := func(flags, id string) {
		t.Helper()
		command := fmt.Sprintf(`millrace put %sorders '{"ID":"%s"}'`, flags, id)
		if out, err := s.command(t.Context(), command).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		<-shipped
	}
	const bursts, jobs = 4, 5
	for burst := range bursts {
		for n := range jobs - 1 {
			put("", fmt.Sprint(burst, "-", n))
		}
		// Until this one is due the workers are idle; if they polled each would send a request a second.
		put("-delay 2s ", fmt.Sprint(burst, "-late"))
	}
	took := time.Since(begin)
	if err := s.server.command.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	got := 0
	for s.server.lines.Scan() {
		if m := regexp.MustCompile(`^GetMessages +(\d+) `).FindStringSubmatch(s.server.lines.Text()); m != nil {
			got, _ = strconv.Atoi(m[1])
		}
	}
	// Two for each job, four of each worker at its start, and a few to spare; on a machine that stands still also
	// those by which the server makes up for events that nobody has followed within 5 s.
	most := 2*bursts*jobs + 2*4 + 5 + 2*int(took/(5*time.Second))
	if got < bursts*jobs || got > most {
		t.Errorf("got %d dequeues in %v for %d jobs, want %d…%d", got, took, bursts*jobs, bursts*jobs, most)
	}
	t.Logf("%d dequeues for %d jobs in %v", got, bursts*jobs, took)
}

//go:build unix

package dedupe_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/internal/killtest"
	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/localqueue/filequeue"
)

// Worker processes with a shared guard in a directory are killed again and again, on a queue in a file.
// Every job is handled, and when each is sent once more none is handled again.
func TestKilledProcessesHandleNoRecordedJobAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("leases of killed processes take ten seconds to end")
	}
	jobs, workers, every := suitetest.Size(60, 120), 2, 30
	engine, err := filequeue.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	endpoint, err := must(emulator.New(engine.Engine, nil)).Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer endpoint.Close()
	location, directory := endpoint.ConnectionString(), t.TempDir()
	q, err := azurequeue.Open(location, "jobs", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()

	p := producer.New(q, &producer.Options[job]{Create: true})
	for _, again := range []bool{false, true} {
		for n := range jobs {
			if _, err := p.Send(t.Context(), job{fmt.Sprint(n)}, &producer.SendOptions{DedupeKey: fmt.Sprint("job ", n)}); err != nil {
				t.Fatal(err)
			}
		}
		output := make(chan string, 10*jobs)
		var pool []*killtest.Process
		for range workers {
			pool = append(pool, killtest.Start(t, output, workerVariable+"="+location, directoryVariable+"="+directory))
		}
		kills := 0
		azuritetest.Until(t, "the queue is empty", func() bool {
			left := depth(t, q)
			if left < int64(jobs-(kills+1)*every) {
				pool[0].Kill(t)
				pool = append(pool[1:], killtest.Start(t, output, workerVariable+"="+location, directoryVariable+"="+directory))
				kills++
			}
			return left == 0
		})
		for _, w := range pool {
			w.Kill(t)
		}
		close(output)
		runs, handled := 0, map[string]bool{}
		for line := range output {
			runs++
			handled[line] = true
		}
		switch {
		case kills == 0:
			t.Error("got no kill")
		case again && runs != 0:
			t.Errorf("sent again: got %d runs, %v; want none", runs, handled)
		case !again && (len(handled) != jobs || runs > jobs+kills*concurrency):
			t.Errorf("got %d jobs handled in %d runs, with %d kills; want %d, and at most %d runs more for each kill", len(handled), runs, kills, jobs, concurrency)
		}
		t.Logf("again %v: %d runs, %d kills", again, runs, kills)
	}
}

func depth(t *testing.T, q queue.Queue) int64 {
	t.Helper()
	p, err := q.Properties(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p.Depth
}

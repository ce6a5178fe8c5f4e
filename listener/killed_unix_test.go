//go:build unix

package listener

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/internal/killtest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
)

// V-04, Q-13, Q-14: worker processes are killed again and again while others run. Every job is
// handled, and in the end the queue and the poison queue are empty.
func TestKilledWorkersLoseNoJob(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	t.Parallel() // it waits for leases
	const workers, jobs, every = 3, 300, 50
	service := must(emulator.New(nil, nil))
	endpoint, err := service.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer endpoint.Close()
	location := endpoint.ConnectionString()
	q, err := azurequeue.Open(location, "jobs", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for n := range jobs {
		if _, err := q.Enqueue(t.Context(), fmt.Sprintf(`{"N":%d}`, n), nil); err != nil {
			t.Fatal(err)
		}
	}

	output := make(chan string, jobs*workers)
	var pool []*killtest.Process
	for range workers {
		pool = append(pool, killtest.Start(t, output, workerVariable+"="+location))
	}
	defer func() {
		for _, w := range pool {
			w.Kill(t)
		}
	}()
	handled := make(map[string]int)
	runs, kills := 0, 0
	for deadline := time.After(time.Minute); len(handled) < jobs; {
		select {
		case line := <-output:
			handled[line]++
			runs++
		case <-deadline:
			t.Fatalf("got %d jobs handled in a minute, want %d", len(handled), jobs)
		}
		if runs%every == 0 {
			pool[0].Kill(t)
			pool = append(pool[1:], killtest.Start(t, output, workerVariable+"="+location))
			kills++
		}
	}
	// Messages that killed workers had handled and not deleted reappear, and others delete them.
	azuritetest.Until(t, "the queue is empty", func() bool { return depth(t, q) == 0 })
	if repeated := runs - jobs; repeated > kills*2*16 {
		t.Errorf("got %d repeated runs after %d kills, want at most %d, the messages they could hold", repeated, kills, kills*2*16)
	}
	if _, err := q.Sibling("-poison").Properties(t.Context()); err == nil {
		t.Error("poison queue: got one, want none")
	}
	t.Logf("%d jobs, %d runs, %d kills", jobs, runs, kills)
}

func depth(t *testing.T, q queue.Queue) int64 {
	t.Helper()
	p, err := q.Properties(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p.Depth
}

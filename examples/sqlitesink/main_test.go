package main

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// refusingQueue refuses the first delete of each message and records it.
type refusingQueue struct {
	queue.Manager
	mu      sync.Mutex
	refused map[queue.ID]bool // guarded by mu
}

func (r *refusingQueue) Delete(ctx context.Context, l queue.Lease) error {
	r.mu.Lock()
	first := !r.refused[l.ID]
	r.refused[l.ID] = true
	r.mu.Unlock()
	if first {
		return queue.ErrLeaseLost // not repeated, so that the message is delivered again
	}
	return r.Manager.Delete(ctx, l)
}

func TestAReadingThatIsDeliveredTwiceIsOneRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "readings.db")
	synctest.Test(t, func(t *testing.T) {
		memory := must(localqueue.New(nil)).Queue(queue.Name{Queue: "readings"})
		q := &refusingQueue{Manager: memory, refused: make(map[queue.ID]bool)}
		if err := run(t.Context(), q, path, 300); err != nil {
			t.Fatal(err)
		}
		if len(q.refused) != 300 {
			t.Errorf("got %d messages delivered twice, want 300", len(q.refused))
		}
		if p, err := memory.Properties(t.Context()); err != nil || p.Depth != 0 {
			t.Errorf("got %d messages left, error %v; want 0", p.Depth, err)
		}
		if p, err := memory.Sibling(poison.Suffix).Properties(t.Context()); err != nil || p.Depth != 6 {
			t.Errorf("got %d poison messages, error %v; want 6: the 3 of the broken sensor, each copied twice", p.Depth, err)
		}
	})
	if rows, readings, broken := count(t, path); rows != 297 || readings != 297 || broken != 0 {
		t.Errorf("got %d rows of %d readings, %d of the broken sensor; want 297, 297, 0", rows, readings, broken)
	}
}

// count returns the numbers of rows, of different readings, and of rows of the broken sensor.
func count(t *testing.T, path string) (rows, readings, broken int) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const query = "SELECT count(*), count(DISTINCT value), count(*) FILTER (WHERE sensor = 13) FROM readings"
	if err := db.QueryRowContext(t.Context(), query).Scan(&rows, &readings, &broken); err != nil {
		t.Fatal(err)
	}
	return rows, readings, broken
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

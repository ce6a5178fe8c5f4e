package main

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// forgetful loses the answer to the first delete of every message.
type forgetful struct {
	queue.Queue
	mu   sync.Mutex
	seen map[queue.ID]bool // guarded by mu
}

func (f *forgetful) Delete(ctx context.Context, l queue.Lease) error {
	f.mu.Lock()
	first := !f.seen[l.ID]
	f.seen[l.ID] = true
	f.mu.Unlock()
	if first {
		return queue.ErrUnauthorized // not repeated: the message is delivered again
	}
	return f.Queue.Delete(ctx, l)
}

func TestEveryReadingIsOneRowThoughItIsDeliveredTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "readings.db")
	q := localqueue.New(nil).Queue(queue.Name{Queue: "readings"})
	if err := run(t.Context(), q, path, 300); err != nil {
		t.Fatal(err)
	}
	if rows, jobs, broken := count(t, path); rows != 297 || jobs != 297 || broken != 0 {
		t.Errorf("got %d rows of %d jobs, %d of the broken sensor; want 297, 297, 0", rows, jobs, broken)
	}
	if p, err := q.Properties(t.Context()); err != nil || p.Depth != 0 {
		t.Errorf("%d messages are left, %v", p.Depth, err)
	}
}

// count returns how many rows there are, of how many jobs, and how many that nobody wants.
func count(t *testing.T, path string) (rows, jobs, broken int) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const query = "SELECT count(*), count(DISTINCT value), count(*) FILTER (WHERE sensor = 13) FROM readings"
	if err := db.QueryRowContext(t.Context(), query).Scan(&rows, &jobs, &broken); err != nil {
		t.Fatal(err)
	}
	return rows, jobs, broken
}

// Sqlitesink writes jobs into SQLite in batches, one transaction for up to a hundred. A job
// that is delivered twice is one row, because its id is the key.
//
//	cd examples/sqlitesink && go run .                # in memory
//	cd examples/sqlitesink && go run . readings.db
//
// It is a module of its own, so that Millrace brings SQLite to nobody else. It sends 1,000
// readings to a queue in this process, and ends when each is a row or poison.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"log"
	"os"
	"slices"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

type Reading struct{ Sensor, Value int }

const schema = "CREATE TABLE IF NOT EXISTS readings (job TEXT PRIMARY KEY, sensor INTEGER, value INTEGER)"

func main() {
	q := localqueue.New(nil).Queue(queue.Name{Queue: "readings"})
	path := slices.Concat(os.Args[1:], []string{"file::memory:"})[0]
	if err := run(context.Background(), q, path, 1000); err != nil {
		log.Fatal(err)
	}
}

// run sends readings and writes them into the database at the path.
func run(ctx context.Context, q queue.Queue, path string, readings int) (err error) {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1) // SQLite has one writer at a time
	if _, err = db.ExecContext(ctx, schema); err != nil {
		return err
	}
	p := producer.New(q, &producer.Options[Reading]{Create: true})
	for n := range readings {
		if _, err = p.Send(ctx, Reading{Sensor: n % 100, Value: n}, nil); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var done atomic.Int64
	o := &listener.Options[Reading]{Concurrency: 400} // room for four batches
	o.Observer.Settled = func(_ listener.Delivery, became listener.Outcome, _ time.Duration) {
		if (became == listener.Deleted || became == listener.Poisoned) && done.Add(1) == int64(readings) {
			stop()
		}
	}
	sink := func(ctx context.Context, ms []*listener.Message[Reading]) []error {
		results, err := insert(ctx, db, ms)
		if err != nil {
			return slices.Repeat([]error{err}, len(ms)) // none is written, all come again
		}
		return results
	}
	return millrace.Run(ctx, listener.New(q, listener.Batch(sink, 100, 100*time.Millisecond), o))
}

// insert writes a batch in one transaction and has a result for each of its jobs. They are
// deleted when it has returned; if that fails they are delivered, and inserted, once more.
func insert(ctx context.Context, db *sql.DB, ms []*listener.Message[Reading]) ([]error, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // of no effect after the commit
	results := make([]error, len(ms))
	for i, m := range ms {
		if m.Body.Sensor == 13 {
			results[i] = listener.Poison(errors.New("sensor 13 is broken"))
			continue
		}
		key := cmp.Or(m.Head.ID, string(m.ID)) // jobs of other producers have no id, only messages do
		if _, err := tx.ExecContext(ctx, "INSERT INTO readings VALUES (?, ?, ?) ON CONFLICT DO NOTHING", key, m.Body.Sensor, m.Body.Value); err != nil {
			return nil, err
		}
	}
	return results, tx.Commit()
}

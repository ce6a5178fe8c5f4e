// Sqlitesink writes jobs into SQLite in batches, up to a hundred in one transaction. A job that is
// delivered twice is one row, because its id is the key.
//
//	go run ./examples/sqlitesink readings.db # in memory without a path
//
// It sends 1,000 readings to an in-memory queue, and ends when each is a row or poison.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
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
const insertReading = "INSERT INTO readings VALUES (?, ?, ?) ON CONFLICT DO NOTHING"

func main() {
	engine, err := localqueue.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	q := engine.Queue(queue.Name{Queue: "readings"})
	path := slices.Concat(os.Args[1:], []string{"file::memory:"})[0] // the argument, if there is one
	if strings.HasPrefix(path, "-") {
		log.Fatal("usage: sqlitesink [FILE]")
	}
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
	var rows, poisoned atomic.Int64
	o := &listener.Options[Reading]{Concurrency: 400} // enough for four batches
	o.Observer.Settled = func(_ listener.Delivery, outcome listener.Outcome, _ time.Duration) {
		switch outcome {
		case listener.Deleted:
			rows.Add(1)
		case listener.Poisoned:
			poisoned.Add(1)
		}
		if rows.Load()+poisoned.Load() == int64(readings) {
			stop()
		}
	}
	sink := func(ctx context.Context, ms []*listener.Message[Reading]) []error {
		results, err := insert(ctx, db, ms)
		if err != nil {
			return slices.Repeat([]error{err}, len(ms)) // nothing is written, so all are retried
		}
		return results
	}
	if err := millrace.Run(ctx, listener.New(q, listener.Batch(sink, 100, 100*time.Millisecond), o)); err != nil {
		return err
	}
	fmt.Printf("%d readings are rows, written in transactions of up to 100. The %d of sensor 13 are poison.\n", rows.Load(), poisoned.Load())
	return nil
}

// insert writes a batch in one transaction and returns a result for each job. The messages are
// deleted after it has returned; if a delete fails, the job is delivered and inserted again.
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
		key := cmp.Or(m.Job, string(m.ID)) // jobs of other producers have only the message id
		if _, err := tx.ExecContext(ctx, insertReading, key, m.Body.Sensor, m.Body.Value); err != nil {
			return nil, err
		}
	}
	return results, tx.Commit()
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/filetable"
)

// target is a table to measure. It is safe for concurrent use.
type target interface {
	insert(ctx context.Context, entities []table.Entity) error // one of them, or a group
	get(ctx context.Context, k table.Key) error
	page(ctx context.Context, from table.Key) (entities int, err error) // of one partition
	remove(ctx context.Context, keys []table.Key) error                 // one of them, or a group
	close() error
}

type tableKind struct {
	name string
	open func(dir string) (target, error) // with an empty table, in a new file in this folder
}

func (k tableKind) String() string { return k.name }

var tableKinds = []tableKind{{"filetable", openFile}, {"sqlite", openSQLite}}

// store is a [table.Store] to measure.
type store struct {
	table.Store
	end func() error
}

func openFile(dir string) (target, error) {
	db, err := filetable.Open(filepath.Join(dir, "tables.db"), nil)
	if err != nil {
		return nil, err
	}
	s, err := db.Table("Blogs")
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return store{s, db.Close}, nil
}

func (s store) insert(ctx context.Context, entities []table.Entity) (err error) {
	if len(entities) == 1 {
		_, err = s.Insert(ctx, entities[0])
		return err
	}
	var changes []table.Change
	for _, e := range entities {
		changes = append(changes, table.Inserting(e))
	}
	_, err = s.Apply(ctx, changes)
	return err
}

func (s store) get(ctx context.Context, k table.Key) error {
	_, err := s.Get(ctx, k)
	return err
}

func (s store) page(ctx context.Context, from table.Key) (int, error) {
	p, err := s.Query(ctx, table.Query{Partition: from.Partition, FromRow: from.Row})
	return len(p.Entities), err
}

func (s store) remove(ctx context.Context, keys []table.Key) error {
	if len(keys) == 1 {
		return s.Delete(ctx, keys[0], table.Any)
	}
	var changes []table.Change
	for _, k := range keys {
		changes = append(changes, table.Deleting(k, table.Any))
	}
	_, err := s.Apply(ctx, changes)
	return err
}

func (s store) close() error { return s.end() }

// plain is a table of SQLite with a column for each property and for the version, each change durable: a write-ahead
// log that every commit waits for. One connection writes, because SQLite has one writer at a time and others
// would poll for it.
type plain struct {
	db     *sql.DB // for readers
	writer *sql.DB
	statements
}

type statements struct{ inserting, getting, paging, removing *sql.Stmt }

func openSQLite(dir string) (target, error) {
	options := url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(60000)", "journal_mode(WAL)", "synchronous(FULL)"}}
	source := "file:" + filepath.Join(dir, "tables.sqlite") + "?" + options.Encode()
	p := &plain{}
	var err1, err2 error
	p.writer, err1 = sql.Open("sqlite", source)
	p.db, err2 = sql.Open("sqlite", source)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	p.writer.SetMaxOpenConns(1)
	p.db.SetMaxIdleConns(16)
	if err := p.prepare(); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *plain) prepare() (err error) {
	const create = `CREATE TABLE blogs (partition TEXT, row TEXT, etag INTEGER, modified INTEGER, title TEXT, text TEXT, userid TEXT, likes INTEGER, createdon INTEGER,
		PRIMARY KEY (partition, row)) WITHOUT ROWID`
	if _, err := p.writer.Exec(create); err != nil {
		return err
	}
	one := func(db *sql.DB, query string) (s *sql.Stmt) {
		if err == nil {
			s, err = db.Prepare(query)
		}
		return s
	}
	const columns = "row, etag, modified, title, text, userid, likes, createdon"
	p.inserting = one(p.writer, "INSERT INTO blogs VALUES (?, ?, abs(random()), ?, ?, ?, ?, ?, ?)")
	p.removing = one(p.writer, "DELETE FROM blogs WHERE partition = ? AND row = ?")
	p.getting = one(p.db, "SELECT "+columns+" FROM blogs WHERE partition = ? AND row = ?")
	p.paging = one(p.db, "SELECT "+columns+" FROM blogs WHERE partition = ? AND row >= ? ORDER BY row LIMIT 1000")
	return err
}

func (p *plain) insert(ctx context.Context, entities []table.Entity) error {
	return p.each(ctx, p.inserting, len(entities), func(i int) []any {
		e := entities[i]
		return []any{e.Partition, e.Row, time.Now().UnixNano(), e.Text("Title"), e.Text("Text"), e.Text("UserId"), e.Int("Likes"), e.Time("CreatedOn").UnixNano()}
	})
}

func (p *plain) remove(ctx context.Context, keys []table.Key) error {
	return p.each(ctx, p.removing, len(keys), func(i int) []any { return []any{keys[i].Partition, keys[i].Row} })
}

// each executes a statement n times: once as a transaction of its own, or all in one. Each must change a row.
func (p *plain) each(ctx context.Context, s *sql.Stmt, n int, arguments func(i int) []any) (err error) {
	if n > 1 {
		tx, err := p.writer.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		s = tx.StmtContext(ctx, s)
		defer func() {
			if err != nil {
				err = errors.Join(err, tx.Rollback())
				return
			}
			err = tx.Commit()
		}()
	}
	for i := range n {
		result, err := s.ExecContext(ctx, arguments(i)...)
		if err != nil {
			return err
		}
		if rows, err := result.RowsAffected(); err != nil || rows != 1 {
			return fmt.Errorf("%d rows were changed, want 1: %w", rows, err)
		}
	}
	return nil
}

func (p *plain) get(ctx context.Context, k table.Key) error {
	rows, err := p.getting.QueryContext(ctx, k.Partition, k.Row)
	n, err := scan(rows, err)
	if err == nil && n != 1 {
		err = fmt.Errorf("%d rows for a key", n)
	}
	return err
}

func (p *plain) page(ctx context.Context, from table.Key) (int, error) {
	rows, err := p.paging.QueryContext(ctx, from.Partition, from.Row)
	return scan(rows, err)
}

// scan makes an entity of each row, as a store does.
func scan(rows *sql.Rows, err error) (n int, _ error) {
	if err != nil {
		return 0, err
	}
	var all []table.Entity
	for rows.Next() {
		var row, title, text, user string
		var etag, modified, likes, created int64
		if err := rows.Scan(&row, &etag, &modified, &title, &text, &user, &likes, &created); err != nil {
			return 0, errors.Join(err, rows.Close())
		}
		all = append(all, table.Entity{Key: table.Key{Row: row}, ETag: table.ETag(fmt.Sprint(etag)), Modified: time.Unix(0, modified), Properties: map[string]any{
			"Title": title, "Text": text, "UserId": user, "Likes": likes, "CreatedOn": time.Unix(0, created).UTC(),
		}})
	}
	return len(all), errors.Join(rows.Err(), rows.Close())
}

func (p *plain) close() error { return errors.Join(p.db.Close(), p.writer.Close()) }

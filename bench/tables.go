package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/filetable"
	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite" // the driver
)

// tables measures what stores of tables do in a second: insertions, point reads, pages, replacements and deletions of
// package filetable, beside a plain table of SQLite, which is as durable. TMPDIR selects the disk.
type tables struct {
	turns
	kinds   []tableKind
	callers []int
	span    time.Duration // of each measurement
	stored  int           // entities that a table has before it is measured
}

func (p *tables) flags(f *flag.FlagSet) {
	p.turns.flags(f)
	several(f, &p.kinds, tableKinds, named(tableKinds), "contenders", "which stores; the others are compared with the first")
	several(f, &p.callers, []int{1, 16}, between(1, 1024, strconv.Atoi), "callers", "numbers of concurrent callers, each with one call at a time")
	one(f, &p.span, 3*time.Second, lasting, "for", "how long each is measured")
	one(f, &p.stored, 50_000, between(pageSize, many, strconv.Atoi), "stored", "entities that a table has before it is measured")
}

func (p *tables) check() error { return nil }

// tableTurn is a store with a number of callers.
type tableTurn struct {
	kind    tableKind
	callers int
	rates   [][]float64 // entities a second, by work and round
}

func (t *tableTurn) String() string { return fmt.Sprintf("%v, %d callers", t.kind, t.callers) }

func (p *tables) run(ctx context.Context, h *harness) (*report, error) {
	var all []*tableTurn
	for _, n := range p.callers {
		for _, k := range p.kinds {
			all = append(all, &tableTurn{k, n, make([][]float64, len(tableWorks))})
		}
	}
	err := takeTurns(ctx, h, p.rounds, all, func(t *tableTurn, _ int) error { return p.once(ctx, h, t) })
	if err != nil {
		return nil, err
	}
	return &report{head: fmt.Sprintf("%s, %s.\n\n", time.Now().UTC().Format(time.DateOnly), h.machine), table: p.table(all)}, nil
}

// once measures all works on a new table.
func (p *tables) once(ctx context.Context, h *harness, t *tableTurn) (err error) {
	dir, err := h.folder(t.kind.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	target, err := t.kind.open(dir)
	if err != nil {
		return err
	}
	m := &measuredTable{target: target}
	defer func() { err = errors.Join(err, target.close()) }()
	if err := m.fill(ctx, p.stored); err != nil {
		return err
	}
	m.stored = m.inserted.Load()
	for i, w := range tableWorks {
		rate, err := m.rate(ctx, w, t.callers, p.span)
		if err != nil {
			return fmt.Errorf("%s, %d a call: %w", w.name, w.call, err)
		}
		t.rates[i] = append(t.rates[i], rate)
		if err := m.align(ctx); err != nil {
			return err
		}
	}
	return nil
}

// table returns the results as Markdown.
func (p *tables) table(all []*tableTurn) string {
	perCallers := len(all) / len(p.callers)
	var b strings.Builder
	b.WriteString("Entities a second:\n\n| call | entities a call | callers |")
	for _, t := range all[:perCallers] {
		fmt.Fprintf(&b, " %v |", t.kind)
	}
	for _, t := range all[1:perCallers] {
		fmt.Fprintf(&b, " %v to %v |", all[0].kind, t.kind)
	}
	b.WriteString("\n|---|--:|--:|" + strings.Repeat("--:|", 2*perCallers-1) + "\n")
	for i, w := range tableWorks {
		for row := range slices.Chunk(all, perCallers) {
			fmt.Fprintf(&b, "| %s | %d | %d |", w.name, w.call, row[0].callers)
			for _, t := range row {
				fmt.Fprintf(&b, " %.0f |", median(t.rates[i]))
			}
			for _, t := range row[1:] {
				fmt.Fprintf(&b, " × %.2f |", median(row[0].rates[i])/max(median(t.rates[i]), 1))
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

type tableWork struct {
	name string
	call int // how many entities one call concerns
	do   func(m *measuredTable, ctx context.Context, n int) error
}

// tableWorks are measured in this order: deletions come last, of what was inserted before.
var tableWorks = []tableWork{
	{"insert", 1, (*measuredTable).insertSome},
	{"insert", groupSize, (*measuredTable).insertSome},
	{"point read", 1, (*measuredTable).getOne},
	{"page", pageSize, (*measuredTable).readPage},
	{"replace", 1, (*measuredTable).replaceOne},
	{"delete", 1, (*measuredTable).removeSome},
	{"delete", groupSize, (*measuredTable).removeSome},
}

// Sizes of what is measured.
const (
	groupSize     = 100    // entities of a group
	pageSize      = 1000   // entities of a page
	partitionSize = 10_000 // entities of a partition, a multiple of the others
)

// keyOf returns the key of the nth entity. The order of keys is that of numbers.
func keyOf(n int) table.Key {
	return table.Key{Partition: fmt.Sprintf("channel%05d", n/partitionSize), Row: fmt.Sprintf("%09d", n)}
}

var (
	blogTitle = strings.Repeat("A blog of gophers. ", 2)
	blogText  = strings.Repeat("What gophers do all day long, and why. ", 6)
	blogBegun = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
)

// entitiesFrom returns n entities from a number on: blogs of some 300 bytes.
func entitiesFrom(first, n int) []table.Entity {
	entities := make([]table.Entity, n)
	for i := range entities {
		entities[i] = table.Entity{Key: keyOf(first + i), Properties: map[string]any{
			"Title": blogTitle, "Text": blogText, "UserId": "ann", "Likes": int64(first + i), "CreatedOn": blogBegun.Add(time.Duration(first+i) * time.Second),
		}}
	}
	return entities
}

// measuredTable is a table whose entities have the numbers from removed to inserted.
type measuredTable struct {
	target
	inserted, removed atomic.Int64 // the next ones
	stored            int64        // all up to there are stored when reads begin
}

// errUsedUp means that all entities were deleted.
var errUsedUp = errors.New("there are no entities left")

func (m *measuredTable) insertSome(ctx context.Context, n int) error {
	end := int(m.inserted.Add(int64(n)))
	return m.insert(ctx, entitiesFrom(end-n, n))
}

func (m *measuredTable) getOne(ctx context.Context, _ int) error {
	return m.get(ctx, keyOf(int(rand.Int64N(m.stored))))
}

func (m *measuredTable) replaceOne(ctx context.Context, _ int) error {
	e := entitiesFrom(int(rand.Int64N(m.stored)), 1)[0]
	e.ETag = table.Any
	return m.replace(ctx, e)
}

// readPage reads a whole page of a partition.
func (m *measuredTable) readPage(ctx context.Context, size int) error {
	from := int(rand.Int64N(m.stored/pageSize)) * pageSize
	n, err := m.page(ctx, keyOf(from))
	if err == nil && n != size {
		err = fmt.Errorf("a page from %v has %d entities, want %d", keyOf(from), n, size)
	}
	return err
}

func (m *measuredTable) removeSome(ctx context.Context, n int) error {
	end := m.removed.Add(int64(n))
	if end > m.inserted.Load() {
		return errUsedUp
	}
	keys := make([]table.Key, n)
	for i := range keys {
		keys[i] = keyOf(int(end) - n + i)
	}
	return m.remove(ctx, keys)
}

// align makes the next group begin at a multiple of its size, so that it lies in one partition.
func (m *measuredTable) align(ctx context.Context) error {
	for m.inserted.Load()%groupSize != 0 {
		if err := m.insertSome(ctx, 1); err != nil {
			return err
		}
	}
	for m.removed.Load()%groupSize != 0 {
		if err := m.removeSome(ctx, 1); err != nil && !errors.Is(err, errUsedUp) {
			return err
		}
	}
	return nil
}

// fill stores entities in groups, by 16 callers.
func (m *measuredTable) fill(ctx context.Context, n int) error {
	return concurrently(16, func() error {
		for m.inserted.Load() < int64(n) {
			if err := errors.Join(ctx.Err(), m.insertSome(ctx, groupSize)); err != nil {
				return err
			}
		}
		return nil
	})
}

// rate returns how many entities a second the calls concern, for a span of time or until all were deleted.
func (m *measuredTable) rate(ctx context.Context, w tableWork, callers int, span time.Duration) (float64, error) {
	var entities atomic.Int64
	begun := time.Now()
	err := concurrently(callers, func() error {
		for time.Since(begun) < span {
			err := w.do(m, ctx, w.call)
			if errors.Is(err, errUsedUp) {
				return nil
			}
			if err != nil {
				return err
			}
			entities.Add(int64(w.call))
		}
		return nil
	})
	return float64(entities.Load()) / time.Since(begun).Seconds(), err
}

// concurrently runs a function several times.
func concurrently(n int, do func() error) error {
	var g errgroup.Group
	for range n {
		g.Go(do)
	}
	return g.Wait()
}

// target is a table to measure. It is safe for concurrent use.
type target interface {
	insert(ctx context.Context, entities []table.Entity) error // one of them, or a group
	replace(ctx context.Context, e table.Entity) error
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

func (s store) replace(ctx context.Context, e table.Entity) error {
	_, err := s.Update(ctx, e)
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

type statements struct{ inserting, replacing, getting, paging, removing *sql.Stmt }

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
	p.replacing = one(p.writer, `UPDATE blogs SET etag = abs(random()), modified = ?, title = ?, text = ?, userid = ?, likes = ?, createdon = ?
		WHERE partition = ? AND row = ?`)
	p.removing = one(p.writer, "DELETE FROM blogs WHERE partition = ? AND row = ?")
	p.getting = one(p.db, "SELECT "+columns+" FROM blogs WHERE partition = ? AND row = ?")
	p.paging = one(p.db, "SELECT "+columns+" FROM blogs WHERE partition = ? AND row >= ? ORDER BY row LIMIT 1000")
	return err
}

func (p *plain) insert(ctx context.Context, entities []table.Entity) error {
	return p.each(ctx, p.inserting, len(entities), func(i int) []any {
		return append([]any{entities[i].Partition, entities[i].Row}, columnsOf(entities[i])...)
	})
}

// columnsOf returns the values of the columns behind the version.
func columnsOf(e table.Entity) []any {
	return []any{time.Now().UnixNano(), e.Text("Title"), e.Text("Text"), e.Text("UserId"), e.Int("Likes"), e.Time("CreatedOn").UnixNano()}
}

func (p *plain) replace(ctx context.Context, e table.Entity) error {
	return p.each(ctx, p.replacing, 1, func(int) []any { return append(columnsOf(e), e.Partition, e.Row) })
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

package books

import (
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// dialect is in what the databases differ.
type dialect struct {
	name      string             // of the database, for people
	schema    string             // before the names of tables
	numbered  bool               // whether parameters are $1, $2 and not ?
	beginning string             // a statement at the start of each transaction that writes, or ""
	reading   sql.TxOptions      // of a transaction that sees one moment
	advice    func(error) string // what to do about an error, or ""
}

// sql translates a statement: @ stands before the names of tables, and ? is a parameter.
func (d *dialect) sql(statement string) string {
	statement = strings.ReplaceAll(statement, "@", d.schema)
	if !d.numbered {
		return statement
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(statement, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		statement = after
	}
}

// explain says what was attempted in which database, what that said, and what to do.
func (d *dialect) explain(attempted string, err error) error {
	if advice := d.advice(err); advice != "" {
		return fmt.Errorf("%s (%s): %w: %s", attempted, d.name, err, advice)
	}
	return fmt.Errorf("%s (%s): %w", attempted, d.name, err)
}

// stampLayout is the text of times, in UTC. It sorts as the times do.
const stampLayout = "2006-01-02T15:04:05.000000Z"

// stamp is a time in a database: text in SQLite, a timestamp with a time zone in PostgreSQL.
func stamp(t time.Time) string { return t.UTC().Format(stampLayout) }

// stamped reads a stamp into a time.
type stamped struct{ time *time.Time }

// Scan implements sql.Scanner.
func (s stamped) Scan(value any) (err error) {
	switch v := value.(type) {
	case time.Time:
		*s.time = v.UTC()
	case string:
		*s.time, err = time.Parse(stampLayout, v)
	default:
		err = fmt.Errorf("a time is expected, got %T", value)
	}
	return err
}

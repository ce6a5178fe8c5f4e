package books

import (
	"context"
	"errors"
	"os"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlitelib "modernc.org/sqlite/lib"
)

// The errors of a database that cannot be the books.
var (
	// ErrForeign is the error of the database of another program. Nothing was written to it.
	ErrForeign = errors.New("this is not a database of billing books")

	// ErrNewer is the error of books that a newer version of this program made.
	ErrNewer = errors.New("a newer version of this program made these books")
)

const nothingRecorded = "nothing of the batch is recorded until then"

// sqliteAdvice says what to do about an error of SQLite.
func sqliteAdvice(err error) string {
	var failed *sqlite.Error
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "make the folder first, or give another path"
	case !errors.As(err, &failed):
		return ""
	}
	switch failed.Code() & 0xff { // without the extended part
	case sqlitelib.SQLITE_FULL:
		return "make room on the disk; " + nothingRecorded
	case sqlitelib.SQLITE_BUSY, sqlitelib.SQLITE_LOCKED:
		return "another program has locked the file; end it, or try again when it is done"
	case sqlitelib.SQLITE_READONLY, sqlitelib.SQLITE_CANTOPEN, sqlitelib.SQLITE_PERM, sqlitelib.SQLITE_AUTH:
		return "this user must be allowed to write the file and its folder, also to read it, because of the files -wal and -shm beside it"
	case sqlitelib.SQLITE_IOERR:
		return "look at the disk: it is full, failing or gone"
	case sqlitelib.SQLITE_CORRUPT, sqlitelib.SQLITE_NOTADB:
		return "the file is damaged; restore it from a copy, or move it and its -wal away and bill again from the input"
	default:
		return ""
	}
}

// postgresAdvice says what to do about an error of PostgreSQL or of the way to it.
func postgresAdvice(err error) string {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		if errors.Is(err, context.Canceled) {
			return ""
		}
		return "look whether the server runs and can be reached; what was not recorded is recorded by another try"
	}
	if advice := postgresCodes[refused.Code]; advice != "" {
		return advice
	}
	switch refused.Code[:min(2, len(refused.Code))] {
	case "28":
		return "check the user and the password in the address, and the server's pg_hba.conf"
	case "53":
		return "the server lacks resources; " + nothingRecorded
	case "57":
		return "the server was stopped or has crashed; " + nothingRecorded
	default:
		return ""
	}
}

// postgresCodes has advice for the codes of PostgreSQL's errors.
var postgresCodes = map[string]string{
	"3D000": "make the database first, as with createdb",
	"25006": "the server is a standby or set to read only; give the address of the primary",
	"42501": "this user needs the right to make a schema (GRANT CREATE ON DATABASE), or the schema millrace_billing and all that is in it",
	"53100": "make room on the server's disk; " + nothingRecorded,
	"53300": "raise max_connections, or end what holds connections",
	"55P03": "another session has locked the tables; end it, or try again when it is done",
}

// isUndefined reports whether a column of another program's table is missing, or has another type.
func isUndefined(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "42703"
}

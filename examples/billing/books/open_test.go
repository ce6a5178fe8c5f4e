package books

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/examples/internal/postgrestest"
)

func testContext(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

// execute runs statements as another program.
func execute(t *testing.T, driver, source string, statements ...string) {
	t.Helper()
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func TestTheFileOfAnotherProgramIsNotWrittenTo(t *testing.T) {
	for name, create := range map[string]func(path string){
		"tables":   func(path string) { execute(t, "sqlite", path, "CREATE TABLE batches (name TEXT)") },
		"an id":    func(path string) { execute(t, "sqlite", path, "PRAGMA application_id = 7") },
		"a log":    func(path string) { execute(t, "sqlite", path, "PRAGMA journal_mode = WAL", "CREATE TABLE a (b)") },
		"a text":   func(path string) { os.WriteFile(path, []byte(strings.Repeat("Dear diary! ", 100)), 0o600) },
		"one line": func(path string) { os.WriteFile(path, []byte("Dear diary!"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "other.db")
			create(path)
			before, _ := os.ReadFile(path)
			b, err := Open(t.Context(), path)
			if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "another path") {
				t.Errorf("got %v", err)
			}
			if err == nil {
				b.Close()
			}
			if after, _ := os.ReadFile(path); string(after) != string(before) || len(before) == 0 {
				t.Error("it was written to")
			}
			if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
				t.Errorf("there are %d files", len(files))
			}
		})
	}
	if _, err := Open(t.Context(), t.TempDir()); !errors.Is(err, ErrForeign) {
		t.Errorf("a folder: got %v", err)
	}
}

// TestTheLogOfAnotherProgramIsLeftAlone: SQLite would write into the file what a crash left in its log.
func TestTheLogOfAnotherProgramIsLeftAlone(t *testing.T) {
	theirs := filepath.Join(t.TempDir(), "a.db")
	db, err := sql.Open("sqlite", theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range []string{"PRAGMA journal_mode = WAL", "CREATE TABLE a (b)", "INSERT INTO a VALUES (1)"} {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	left := filepath.Join(t.TempDir(), "a.db") // as after a crash
	content := map[string]string{}
	for _, suffix := range []string{"", "-wal"} {
		bytes, err := os.ReadFile(theirs + suffix)
		if err != nil || os.WriteFile(left+suffix, bytes, 0o600) != nil {
			t.Fatal(err)
		}
		content[left+suffix] = string(bytes)
	}
	if _, err := Open(t.Context(), left); !errors.Is(err, ErrForeign) {
		t.Errorf("got %v", err)
	}
	files, _ := filepath.Glob(left + "*")
	for _, file := range files {
		if bytes, _ := os.ReadFile(file); string(bytes) != content[file] {
			t.Errorf("%s was written to", file)
		}
	}
	if len(files) != 2 {
		t.Errorf("got the files %q", files)
	}
}

// TestManyMakeTheBooksAtOnce: each process finds them made, whoever was first.
func TestManyMakeTheBooksAtOnce(t *testing.T) {
	for range 60 {
		path := filepath.Join(t.TempDir(), "books.db")
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				b, err := Open(t.Context(), path)
				if err != nil {
					t.Error(err)
					return
				}
				b.Close()
			})
		}
		group.Wait()
	}
}

func TestTheSchemaOfAnotherProgramIsNotWrittenTo(t *testing.T) {
	for name, create := range map[string][]string{
		"tables":             {"CREATE SCHEMA millrace_billing", "CREATE TABLE millrace_billing.batches (name TEXT)"},
		"an about of theirs": {"CREATE SCHEMA millrace_billing", "CREATE TABLE millrace_billing.about (author TEXT)"},
		"an empty about":     {"CREATE SCHEMA millrace_billing", "CREATE TABLE millrace_billing.about (application TEXT, version INTEGER)"},
	} {
		t.Run(name, func(t *testing.T) {
			address := postgrestest.Database(t)
			execute(t, "pgx", address, create...)
			b, err := Open(t.Context(), address)
			if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "another database") {
				t.Errorf("got %v", err)
			}
			if err == nil {
				b.Close()
			}
			tables := 0
			db, _ := sql.Open("pgx", address)
			defer db.Close()
			if err := db.QueryRow("SELECT count(*) FROM pg_tables WHERE schemaname = 'millrace_billing'").Scan(&tables); err != nil || tables != 1 {
				t.Errorf("got %d tables, want the one that was there: %v", tables, err)
			}
		})
	}
}

// TestASchemaThatAnAdministratorMadeIsUsed: then the user needs no right to make one.
func TestASchemaThatAnAdministratorMadeIsUsed(t *testing.T) {
	address := postgrestest.Database(t)
	execute(t, "pgx", address, "CREATE ROLE clerk LOGIN", "CREATE SCHEMA millrace_billing AUTHORIZATION clerk", "CREATE ROLE guest LOGIN")
	at, _ := url.Parse(address)
	at.User = url.User("clerk")
	recorded(t, opened(t, at.String()), made("batch", 1))

	at.User = url.User("guest")
	if _, err := Open(t.Context(), at.String()); err == nil || !strings.Contains(err.Error(), "the right") {
		t.Errorf("a user without rights: got %v", err)
	}
	execute(t, "pgx", address, "GRANT USAGE ON SCHEMA millrace_billing TO guest", "GRANT SELECT ON ALL TABLES IN SCHEMA millrace_billing TO guest")
	checkWhole(t, opened(t, at.String()), 1, 1) // who may read can report
}

func TestNewerBooksAreRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		opened(t, address)
		if strings.HasPrefix(address, "postgres") {
			execute(t, "pgx", address, "UPDATE millrace_billing.about SET version = 2")
		} else {
			execute(t, "sqlite", address, "PRAGMA user_version = 2")
		}
		if _, err := Open(t.Context(), address); !errors.Is(err, ErrNewer) {
			t.Errorf("got %v", err)
		}
	})
}

// TestEachCommitIsWrittenThrough: on each connection, also where the server says otherwise.
func TestEachCommitIsWrittenThrough(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		if !strings.HasPrefix(address, "postgres") {
			b := opened(t, address)
			for range maxSQLiteConnections {
				conn, err := b.db.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				for setting, want := range map[string]string{"synchronous": "2", "journal_mode": "wal", "foreign_keys": "1", "fullfsync": "1"} {
					got := ""
					if err := conn.QueryRowContext(t.Context(), "PRAGMA "+setting).Scan(&got); err != nil || got != want {
						t.Errorf("%s is %s, want %s: %v", setting, got, want, err)
					}
				}
			}
			return
		}
		at, _ := url.Parse(address)
		execute(t, "pgx", address, "ALTER DATABASE "+at.Path[1:]+" SET synchronous_commit = off")
		b := opened(t, address)
		execute(t, "pgx", address, "CREATE TABLE seen (value TEXT)",
			"CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$",
			"CREATE TRIGGER look AFTER INSERT ON millrace_billing.batches EXECUTE FUNCTION look()")
		recorded(t, b, made("batch", 1))
		var value string
		if err := b.db.QueryRowContext(t.Context(), "SELECT value FROM seen").Scan(&value); err != nil || value != "on" {
			t.Errorf("synchronous_commit is %q: %v", value, err)
		}
	})
}

func TestPathsMayContainAnything(t *testing.T) {
	for _, name := range []string{"a?b=c&_pragma=x.db", "50% #1 +é.db", ":memory:", "file:x.db", "-"} {
		t.Chdir(t.TempDir())
		b, err := Open(t.Context(), name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		recorded(t, b, made("batch", 1))
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if files, _ := filepath.Glob("*"); len(files) != 1 || files[0] != name {
			t.Errorf("%s: got the files %q", name, files)
		}
	}
}

// TestErrorsSayWhatToDo: where, what the database said, and a way out; never a password.
func TestErrorsSayWhatToDo(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	nobody := listener.Addr().String() // who listens there
	for address, want := range map[string]string{
		"":                                  "the path of an SQLite file, or postgres://",
		"mysql://root@localhost/books":      "mysql://, which is no database",
		filepath.Join("no", "such", "a.db"): "make the folder first",
		"postgres://me:secret@%zz/":         "it is postgres://USER",
		"postgres://me:secret@" + nobody + "/books?sslmode=disable": "look whether the server runs",
	} {
		_, err := Open(t.Context(), address)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "billing books") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want %q", address, err, want)
		}
	}
	address := postgrestest.Database(t)
	at, _ := url.Parse(address)
	at.Path = "missing"
	if _, err := Open(t.Context(), at.String()); err == nil || !strings.Contains(err.Error(), "createdb") {
		t.Errorf("a missing database: got %v", err)
	}
}

func TestALockedFileIsAnErrorThatSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "books.db")
	b, err := open(t.Context(), path, 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	other, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.SetMaxOpenConns(1)
	if _, err := other.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	d := made("batch", 1)
	if _, err := d.record(t.Context(), b); err == nil || !strings.Contains(err.Error(), "another program has locked the file") {
		t.Errorf("got %v", err)
	}
	checkWhole(t, b, 0, 0) // readers do not wait
	if _, err := other.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	recorded(t, b, d)
}

// TestAFullFileIsAnErrorThatSaysSo: SQLite's own limit gives the error of a full disk everywhere.
func TestAFullFileIsAnErrorThatSaysSo(t *testing.T) {
	b := opened(t, filepath.Join(t.TempDir(), "books.db"))
	b.db.SetMaxOpenConns(1)
	if _, err := b.db.Exec("PRAGMA max_page_count = 20"); err != nil {
		t.Fatal(err)
	}
	d := made("batch", 1000)
	if _, err := d.record(t.Context(), b); err == nil || !strings.Contains(err.Error(), "make room on the disk") {
		t.Errorf("got %v", err)
	}
	checkWhole(t, b, 0, 0)
	if _, err := b.db.Exec("PRAGMA max_page_count = 100000"); err != nil {
		t.Fatal(err)
	}
	recorded(t, b, d)
	checkWhole(t, b, 1, 1000)
}

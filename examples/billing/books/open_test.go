package books

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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
		"tables": func(path string) { execute(t, "sqlite", path, "CREATE TABLE batches (name TEXT)") },
		"an id":  func(path string) { execute(t, "sqlite", path, "PRAGMA application_id = 7") },
		"a newer version": func(path string) {
			execute(t, "sqlite", path, fmt.Sprintf("PRAGMA application_id = %d", applicationID), fmt.Sprintf("PRAGMA user_version = %d", version+1))
		},
		"a log":    func(path string) { execute(t, "sqlite", path, "PRAGMA journal_mode = WAL", "CREATE TABLE a (b)") },
		"a text":   func(path string) { os.WriteFile(path, []byte(strings.Repeat("Dear diary! ", 100)), 0o600) },
		"one line": func(path string) { os.WriteFile(path, []byte("Dear diary!"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "other.db")
			create(path)
			before, _ := os.ReadFile(path)
			b, err := Open(t.Context(), path)
			if err == nil || !strings.Contains(err.Error(), path) {
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
	if _, err := Open(t.Context(), t.TempDir()); err == nil {
		t.Error("a folder was opened")
	}
}

// TestManyMakeTheBooksAtOnce: each process finds them made, whoever was first.
func TestManyMakeTheBooksAtOnce(t *testing.T) {
	t.Parallel()
	times := 30
	if testing.Short() {
		times = 2
	}
	for range times {
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

// Each commit is written through to the disk on each connection, even if the server says otherwise.
func TestEachCommitIsWrittenThrough(t *testing.T) {
	onBoth(t, func(t *testing.T, address string) {
		if !strings.HasPrefix(address, "postgres") {
			b := opened(t, address)
			for range 4 {
				conn, err := b.db.Conn(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				for setting, want := range map[string]string{"synchronous": "2", "journal_mode": "wal", "fullfsync": "1"} {
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
			"CREATE TRIGGER look AFTER INSERT ON billing_batches EXECUTE FUNCTION look()")
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

// Errors say where, and what the database said; never a password.
func TestErrorsNameTheBooksAndNoPassword(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	closed := listener.Addr().String()
	for address, want := range map[string]string{
		"":                                  "the path of an SQLite file, or postgres://",
		"mysql://root@localhost/books":      "the path of an SQLite file, or postgres://",
		filepath.Join("no", "such", "a.db"): "unable to open",
		"postgres://me:secret@%zz/":         "invalid",
		"postgres://me:secret@" + closed + "/books?sslmode=disable": "connection refused",
	} {
		_, err := Open(t.Context(), address)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "open the books") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want %q", address, err, want)
		}
	}
	at, _ := url.Parse(postgrestest.Database(t))
	at.Path = "missing"
	if _, err := Open(t.Context(), at.String()); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a missing database: got %v", err)
	}
}

// SQLite's own limit gives the error of a full disk everywhere.
func TestAFullDiskLosesNothing(t *testing.T) {
	b := opened(t, filepath.Join(t.TempDir(), "books.db"))
	b.db.SetMaxOpenConns(1)
	if _, err := b.db.Exec("PRAGMA max_page_count = 20"); err != nil {
		t.Fatal(err)
	}
	d := made("batch", 1000)
	if _, err := d.record(t.Context(), b); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("got %v", err)
	}
	checkWhole(t, b, 0, 0)
	if _, err := b.db.Exec("PRAGMA max_page_count = 100000"); err != nil {
		t.Fatal(err)
	}
	recorded(t, b, d)
	checkWhole(t, b, 1, 1000)
}

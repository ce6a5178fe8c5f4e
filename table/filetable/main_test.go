package filetable

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/boltfile"
	"github.com/millrace/millrace/table"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writeVariable); path != "" { // started by a test, to be killed
		if err := writeUntilKilled(path, os.Getenv(generationVariable)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if path := os.Getenv(openVariable); path != "" {
		fmt.Println(openOnce(path))
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// scratch returns the path of a file that does not exist, in memory if that is possible: most tests are not
// about the disk.
func scratch(t testing.TB) (path string) {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "filetable") //nolint:usetesting // TempDir is on a disk
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "tables.db")
}

// opened opens a file, which the test's end closes.
func opened(t testing.TB, path string) *DB {
	t.Helper()
	db, err := Open(path, &Options{Wait: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, db) })
	return db
}

func closed(t testing.TB, db *DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

func tableOf(t testing.TB, db *DB, name string) table.Store {
	t.Helper()
	s, err := db.Table(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// entity returns one with a property.
func entity(partition, row, text string) table.Entity {
	return table.Entity{Key: table.Key{Partition: partition, Row: row}, Properties: map[string]any{"Text": text}}
}

func inserted(t testing.TB, s table.Store, e table.Entity) table.ETag {
	t.Helper()
	etag, err := s.Insert(context.Background(), e)
	if err != nil {
		t.Fatal(err)
	}
	return etag
}

// commits returns the number of the newest commit.
func commits(t testing.TB, db *DB) int {
	t.Helper()
	id, err := db.newestCommit()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// changed changes the file directly, as a bad disk or another program does, and seals the commit.
func changed(t testing.TB, path string, change func(*bolt.Tx) error) {
	t.Helper()
	tree, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.Update(change); err != nil {
		t.Error(err)
	}
	if err := tree.Close(); err != nil {
		t.Error(err)
	}
	content := readFile(t, path)
	m := newestMeta(t, content)
	metaPage := content[m.MetaAt(m.Slot):][:m.PageSize]
	copy(metaPage[sealAt:], newSealer(metaPage).seal())
	writeFile(t, path, content)
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// withoutReserve returns the part of a file that its newest commit needs.
func withoutReserve(t testing.TB, content []byte) []byte {
	t.Helper()
	m := newestMeta(t, content)
	return content[:m.High*uint64(m.PageSize)]
}

func newestMeta(t testing.TB, content []byte) boltfile.Meta {
	t.Helper()
	r, err := boltfile.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	return r.Meta
}

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

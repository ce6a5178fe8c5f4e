package filequeue

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// firstVersion turns the tree into one of the first version of this package.
func firstVersion(t *testing.T, s *Store, logs uint64) {
	t.Helper()
	err := s.update(func(tx *bolt.Tx) error {
		two := func(key []byte, a, b uint64) error {
			record := binary.BigEndian.AppendUint64([]byte{recordVersion}, a)
			return tx.Bucket(metaBucket).Put(key, appendChecksum(binary.BigEndian.AppendUint64(record, b), 0, metaBucket, key))
		}
		return errors.Join(two(keyCheckpoint, s.number, logs), two(keyDigest, s.digest.bodies.count, 12345)) // a sum of keys alone
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestADirectoryOfAnEarlierVersionIsRead: if it was closed cleanly, it is read and then has
// everything that this version writes.
func TestADirectoryOfAnEarlierVersionIsRead(t *testing.T) {
	dir := memoryDirectory(t)
	s, texts := begun(t, dir), map[uint64]string{}
	put(t, s, texts, 1, "old")
	if err := s.finalCheckpoint(); err != nil {
		t.Fatal(err)
	}
	firstVersion(t, s, noLogs)
	s.abandon(t)
	reopenedWhole(t, dir, texts)
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, texts, 2, "new")
	if err := s.finalCheckpoint(); err != nil || s.digest.others.count == 0 {
		t.Errorf("got the error %v and the digest %+v, want one of all records", err, s.digest)
	}
	s.abandon(t)
	reopenedWhole(t, dir, texts)
}

// TestLogsOfAnEarlierVersionAreRefused: they are neither misread nor removed, and the
// directory is unchanged.
func TestLogsOfAnEarlierVersionAreRefused(t *testing.T) {
	dir := memoryDirectory(t)
	s := begun(t, dir)
	put(t, s, map[uint64]string{}, 1, "old")
	const theirLogs = 1
	firstVersion(t, s, theirLogs)
	s.abandon(t)
	before := contentsOf(t, dir)
	if _, err := Open(dir); !errors.Is(err, errOldLogs) || !strings.Contains(err.Error(), dir) {
		t.Errorf("Open: got %v, want errOldLogs", err)
	}
	if after := contentsOf(t, dir); !reflect.DeepEqual(before, after) {
		t.Error("Open changed the directory")
	}
}

// contentsOf returns the contents of the files of a directory, except the lock.
func contentsOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path == lockName {
			return err
		}
		b, err := os.ReadFile(filepath.Join(dir, path))
		files[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

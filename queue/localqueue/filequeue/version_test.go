package filequeue

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// firstVersion turns the tree into one of the first version of this package.
func firstVersion(t *testing.T, s *store) {
	t.Helper()
	err := s.update(func(tx *bolt.Tx) error {
		two := func(key []byte, a, b uint64) error {
			record := binary.BigEndian.AppendUint64([]byte{recordVersion}, a)
			return tx.Bucket(metaBucket).Put(key, appendChecksum(binary.BigEndian.AppendUint64(record, b), 0, metaBucket, key))
		}
		return errors.Join(two(keyCheckpoint, s.number, noLogs), two(keyDigest, s.digest.bodies.count, 12345)) // a sum of keys alone
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
	firstVersion(t, s)
	s.abandon(t)
	reopenedWhole(t, dir, texts)
	s, err := openStore(dir)
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

// TestATornLogOfTheFirstFormatIsReported: the commits before the torn one are there.
func TestATornLogOfTheFirstFormatIsReported(t *testing.T) {
	dir := unpacked(t, "f8d9a14-killed")
	for i := range 2 {
		path := filepath.Join(dir, walName(i+1))
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(b, []byte("after the clear")); at >= 0 {
			b[at] ^= 1
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if found, texts := reopenedTexts(t, dir); found.Damaged > 0 || !found.Torn || found.Messages != len(releasesHave)-1 {
		t.Errorf("got %+v and %d messages, want a torn log and %d", found, len(texts), len(releasesHave)-1)
	}
	if found, _ := reopenedTexts(t, dir); found.Damaged > 0 || found.Torn || found.Messages != len(releasesHave)-1 {
		t.Errorf("opened again: got %+v, want a sound log", found)
	}
}

// TestEmptyLogsOfTheSecondFormatAreSound: the earlier release was killed before the first commit to
// one of its logs, or to both.
func TestEmptyLogsOfTheSecondFormatAreSound(t *testing.T) {
	for used := range 2 { // the number of logs with a commit
		dir := memoryDirectory(t)
		s, texts := begun(t, dir), map[uint64]string{}
		put(t, s, texts, 1, "in the tree")
		if err := s.finalCheckpoint(); err != nil {
			t.Fatal(err)
		}
		setCheckpoint(t, s, checkpoint{s.number, secondFormat, s.time}.record())
		for _, l := range s.logs {
			if err := l.file.Truncate(0); err != nil {
				t.Fatal(err)
			}
			l.format, l.end, l.size = secondFormat, 0, 0
			if err := l.writeEndMark(s.number); err != nil {
				t.Fatal(err)
			}
		}
		s.checkpointed, s.pending, s.active = s.number, newPending(), 0
		if used > 0 {
			put(t, s, texts, 2, "in the log")
		}
		s.abandon(t)
		reopenedWhole(t, dir, texts)
		reopenedWhole(t, dir, texts)
	}
}

// TestADamagedHeaderLosesNothing: even if it then seems to name a later format, or no format.
func TestADamagedHeaderLosesNothing(t *testing.T) {
	for _, from := range []string{"format 3", "Millrace"} {
		dir := memoryDirectory(t)
		s, texts := begun(t, dir), map[uint64]string{}
		put(t, s, texts, 1, "text")
		s.abandon(t)
		for i := range 2 {
			path := filepath.Join(dir, walName(i+1))
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b[bytes.Index(b, []byte(from))+len(from)-1] = '9'
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		reopenedWhole(t, dir, texts)
	}
}

// TestADirectoryOfALaterReleaseIsRefused: the error names that release if there are logs, and
// nothing is changed.
func TestADirectoryOfALaterReleaseIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("rewrites many files")
	}
	for what, change := range map[string]func(t *testing.T, s *store) (want string){
		"a log": func(t *testing.T, s *store) string {
			text := fmt.Sprintf(headerText, logFormat+1, "v9.8.7")
			header := fmt.Sprintf("%s\n%08x", text, crc32.Checksum([]byte(text), castagnoli))
			if _, err := s.logs[1].file.WriteAt([]byte(header), 0); err != nil {
				t.Fatal(err)
			}
			return "format 4, written by v9.8.7; this program reads formats up to 3"
		},
		"the format of the logs in the tree": func(t *testing.T, s *store) string {
			setCheckpoint(t, s, checkpoint{s.number, logFormat + 1, s.time}.record())
			return "use that release"
		},
		"a record of the tree": func(t *testing.T, s *store) string {
			setCheckpoint(t, s, appendChecksum([]byte{thirdVersion + 1}, 0, metaBucket, keyCheckpoint))
			return "use that release"
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := memoryDirectory(t)
			s := begun(t, dir)
			put(t, s, map[uint64]string{}, 1, "later")
			want := change(t, s)
			s.abandon(t)
			before := contentsOf(t, dir)
			if _, err := openStore(dir); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), want) {
				t.Errorf("Open: got %v, want ErrNewer, the directory and %q", err, want)
			}
			if after := contentsOf(t, dir); !reflect.DeepEqual(before, after) {
				t.Error("Open changed the directory")
			}
		})
	}
}

func setCheckpoint(t *testing.T, s *store, record []byte) {
	t.Helper()
	if err := s.update(func(tx *bolt.Tx) error { return tx.Bucket(metaBucket).Put(keyCheckpoint, record) }); err != nil {
		t.Fatal(err)
	}
}

// TestEarlierReleasesReadADirectoryThatWasClosed: they know the first two versions of the
// checkpoint's record, and refuse the third as that of a later release, instead of overlooking
// the logs.
func TestEarlierReleasesReadADirectoryThatWasClosed(t *testing.T) {
	dir := memoryDirectory(t)
	s := begun(t, dir)
	version := func() (v byte) {
		t.Helper()
		if err := s.db.View(func(tx *bolt.Tx) error { v = tx.Bucket(metaBucket).Get(keyCheckpoint)[0]; return nil }); err != nil {
			t.Fatal(err)
		}
		return v
	}
	put(t, s, map[uint64]string{}, 1, "text")
	if got := version(); got != thirdVersion {
		t.Errorf("with logs: got version %d, want %d", got, thirdVersion)
	}
	if err := s.finalCheckpoint(); err != nil {
		t.Fatal(err)
	}
	if got := version(); got != secondVersion {
		t.Errorf("closed: got version %d, want %d", got, secondVersion)
	}
	s.abandon(t)
}

// TestALogNamesItsFormat: in its first line, for people.
func TestALogNamesItsFormat(t *testing.T) {
	dir := memoryDirectory(t)
	s := begun(t, dir)
	put(t, s, map[uint64]string{}, 1, "text")
	s.abandon(t)
	for i := range 2 {
		b, err := os.ReadFile(filepath.Join(dir, walName(i+1)))
		if err != nil {
			t.Fatal(err)
		}
		line, _, _ := bytes.Cut(b, []byte("\n"))
		if want := "Millrace queue log, format 3, written by " + release(); string(line) != want {
			t.Errorf("%s: got %q, want %q", walName(i+1), line, want)
		}
		if format, by := readLogHeader(b[:sector]); format != logFormat || by != release() {
			t.Errorf("%s: got format %d by %q, want %d by %q", walName(i+1), format, by, logFormat, release())
		}
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

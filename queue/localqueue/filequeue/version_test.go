package filequeue

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/queue/localqueue/storage"
)

// firstVersion turns the tree into one of the first version of this package.
func firstVersion(t *testing.T, s *Store) {
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

// unpacked returns a directory that another release wrote: testdata/releases has them, without
// the lock and the reserve. The unused ends of their logs are zeros, to be small.
func unpacked(t *testing.T, name string) (dir string) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "releases", name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir = memoryDirectory(t)
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		var b []byte
		if err == nil {
			b, err = io.ReadAll(files)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, header.Name), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// releasesHave is the content of the directories in testdata/releases: the dequeue counts by
// text. All were written by the same program.
var releasesHave = map[string]int64{
	"rewritten tree 1": 2, "tree 2": 1, "tree 3": 1, "tree 4": 1, "tree 5": 1, "3006 bytes": 1,
	"log 0": 1, "rewritten log 2": 1, "log 3": 1, "log 4": 1, "log 5": 0, "delayed": 0,
	"after the clear": 0,
}

// TestDirectoriesOfEarlierReleasesAreRead: also those of a server that was killed. After this
// release was killed too, everything is still there.
func TestDirectoriesOfEarlierReleasesAreRead(t *testing.T) {
	for _, name := range []string{"f8d9a14-stopped", "f8d9a14-killed", "cdcf2f8-stopped", "cdcf2f8-killed"} {
		t.Run(name, func(t *testing.T) {
			dir, want := unpacked(t, name), maps.Clone(releasesHave)
			for run := range 3 {
				s, err := Open(dir)
				if err != nil {
					t.Fatal(err)
				}
				if found := s.Found(); found.Damaged > 0 || found.Torn || found.Queues != 3 {
					t.Errorf("run %d: got %+v, want 3 queues without damage", run, found)
				}
				saved, view := loaded(t, s)
				ordinals, got := map[string]uint64{}, map[string]int64{}
				for _, q := range saved.Queues {
					ordinals[q.Name.Queue] = q.Ordinal
					if owner := q.Metadata["owner"]; (owner == "ana") != (q.Name.Queue == "orders") {
						t.Errorf("run %d: queue %s: got the owner %q", run, q.Name.Queue, owner)
					}
				}
				for m := range saved.Messages {
					text, err := view.Text(m.MessageKey)
					if err != nil {
						t.Error(err)
					}
					if len(text) > 1000 {
						text = fmt.Sprintf("%d bytes", len(text))
					}
					got[text] = m.Dequeues
					if m.Queue == ordinals["orders"] == (text == "after the clear" || strings.HasPrefix(text, "run")) {
						t.Errorf("run %d: %.20q is in the wrong queue", run, text)
					}
				}
				view.Close()
				if !maps.Equal(got, want) {
					t.Errorf("run %d: got %v, want %v", run, got, want)
				}
				text := fmt.Sprintf("run %d", run)
				m := storage.MessageState{MessageKey: storage.MessageKey{Queue: ordinals["cleared"], Sequence: uint64(1000 + run)}, Expires: 1 << 62}
				commit(t, s, storage.MessageAdded{MessageState: m, Text: text})
				want[text] = 0
				s.abandon(t)
			}
		})
	}
}

// TestAnInterruptedUpgradeLosesNothing: the process was killed after the checkpoint that has the
// logs of an earlier release, and before the tree says that there are new ones.
func TestAnInterruptedUpgradeLosesNothing(t *testing.T) {
	for _, release := range []string{"f8d9a14-killed", "cdcf2f8-killed"} {
		for begun := range 3 { // the number of logs that had been begun
			dir := unpacked(t, release)
			old := contentsOf(t, dir)
			s, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			setCheckpoint(t, s, checkpoint{s.number, noLogs, s.time}.record())
			s.abandon(t)
			for i := begun; i < 2; i++ {
				if err := os.WriteFile(filepath.Join(dir, walName(i+1)), []byte(old[walName(i+1)]), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if found, _ := reopenedTexts(t, dir); found.Damaged > 0 || found.Torn || found.Messages != len(releasesHave) {
					t.Errorf("%s, %d logs begun: got %+v, want %d messages", release, begun, found, len(releasesHave))
				}
			}
		}
	}
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

// TestADirectoryOfALaterReleaseIsRefused: the error names that release if there are logs, and
// nothing is changed.
func TestADirectoryOfALaterReleaseIsRefused(t *testing.T) {
	for what, change := range map[string]func(t *testing.T, s *Store) (want string){
		"a log": func(t *testing.T, s *Store) string {
			text := fmt.Sprintf(headerText, logFormat+1, "v9.8.7")
			header := fmt.Sprintf("%s\n%08x", text, crc32.Checksum([]byte(text), castagnoli))
			if _, err := s.logs[1].file.WriteAt([]byte(header), 0); err != nil {
				t.Fatal(err)
			}
			return "format 4, written by v9.8.7; this program reads formats up to 3"
		},
		"the format of the logs in the tree": func(t *testing.T, s *Store) string {
			setCheckpoint(t, s, checkpoint{s.number, logFormat + 1, s.time}.record())
			return "use that release"
		},
		"a record of the tree": func(t *testing.T, s *Store) string {
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
			if _, err := Open(dir); !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), want) {
				t.Errorf("Open: got %v, want ErrNewer, the directory and %q", err, want)
			}
			if after := contentsOf(t, dir); !reflect.DeepEqual(before, after) {
				t.Error("Open changed the directory")
			}
		})
	}
}

func setCheckpoint(t *testing.T, s *Store, record []byte) {
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

package filequeue

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/internal/smalldisktest"
	"github.com/millrace/millrace/queue"
)

// TestAFullDiskCanBeDrained fills a disk to the last page, reopens the store, deletes every
// message, and fills it again.
func TestAFullDiskCanBeDrained(t *testing.T) {
	dir := smalldisktest.Mount(t, 24)
	e := opened(t, dir)
	n := fillToTheEnd(t, made(t, e, "full"))
	closed(t, e)

	e = opened(t, dir)
	q := e.Queue(queue.Name{Account: account, Queue: "full"})
	left := n
	for {
		batch, err := q.Dequeue(t.Context(), queue.MaxBatch, time.Hour)
		if err != nil {
			t.Fatalf("%d of %d messages are left: %v", left, n, err)
		}
		if len(batch) == 0 {
			break
		}
		for _, m := range batch {
			if err := q.Delete(t.Context(), m.Lease); err != nil {
				t.Fatalf("%d of %d messages are left: %v", left, n, err)
			}
			left--
		}
	}
	if left != 0 {
		t.Errorf("%d of %d messages are lost", left, n)
	}
	if again := fillToTheEnd(t, q); again < n/2 {
		t.Errorf("messages after the drain: got %d, want at least half of the first %d", again, n)
	}
	closed(t, e)
}

// TestAKillOnAFullDiskLosesNothing: a store is killed on a full disk, reopened, killed
// after every ten deletes, and takes puts again when it is empty.
func TestAKillOnAFullDiskLosesNothing(t *testing.T) {
	dir := smalldisktest.Mount(t, 24)
	s, texts := begun(t, dir), map[uint64]string{}
	for n := uint64(1); ; n++ {
		if _, err := s.Commit([]localengine.Change{added(n, largeText)}); errors.Is(err, syscall.ENOSPC) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		texts[n] = largeText
	}
	s.abandon(t)
	reopenedWhole(t, dir, texts)
	for len(texts) > 0 {
		s, err := openStore(dir)
		if err != nil {
			t.Fatalf("Open with %d messages left: got %v, want no error", len(texts), err)
		}
		if found := s.Found(); found.Damaged > 0 || found.Torn || found.Messages != len(texts) {
			t.Fatalf("found %+v, want %d messages", found, len(texts))
		}
		for sequence := range texts {
			commit(t, s, localengine.MessageRemoved(key(sequence)))
			if delete(texts, sequence); len(texts)%10 == 0 {
				break
			}
		}
		if len(texts) == 0 {
			commit(t, s, added(9999, largeText))
		}
		s.abandon(t)
	}
	reopenedWhole(t, dir, map[uint64]string{9999: largeText})
}

// TestALogBeginsWhenThereIsSpace: a store that is opened on a full disk works
// without logs until there is space.
func TestALogBeginsWhenThereIsSpace(t *testing.T) {
	dir := smalldisktest.Mount(t, 24)
	s, texts := begun(t, dir), map[uint64]string{}
	for n := range uint64(50) {
		put(t, s, texts, n, largeText)
	}
	for n := range uint64(25) { // so that there are free pages
		commit(t, s, localengine.MessageRemoved(key(n)))
		delete(texts, n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, reserveName)); err != nil {
		t.Fatal(err)
	}
	taken := occupy(t, dir)
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	if found := s.Found(); s.logsReady || found.Damaged > 0 || found.Messages != len(texts) {
		t.Errorf("got %+v, logs ready %v; want %d messages without logs", found, s.logsReady, len(texts))
	}
	for n := uint64(25); n < 30; n++ {
		commit(t, s, localengine.MessageRemoved(key(n)))
		delete(texts, n)
	}
	s.abandon(t)
	reopenedWhole(t, dir, texts)
	if s, err = openStore(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(taken); err != nil {
		t.Fatal(err)
	}
	put(t, s, texts, 100, "with room again")
	before := treeCommits(t, s)
	put(t, s, texts, 101, "in the log")
	if got := treeCommits(t, s) - before; got != 0 || !s.logsReady {
		t.Errorf("put with space again: got %d commits to the tree, want 0 and logs", got)
	}
	s.abandon(t)
	reopenedWhole(t, dir, texts)
}

// occupy fills a disk to the last byte.
func occupy(t *testing.T, dir string) (path string) {
	t.Helper()
	path = filepath.Join(dir, "of another program")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func fillToTheEnd(t *testing.T, q queue.Queue) (n int) {
	t.Helper()
	for {
		_, err := q.Enqueue(t.Context(), text, nil)
		if errors.Is(err, syscall.ENOSPC) && errors.Is(err, queue.ErrUnavailable) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
}

// TestAMostlyFreeFileOpensOnAFullDisk: there is no space to rebuild it, or to rebuild all of it.
// Nothing of the attempt is left, and the engine removes the cleared messages from the file.
func TestAMostlyFreeFileOpensOnAFullDisk(t *testing.T) {
	for _, spare := range []int64{0, 4 << 10, 8 << 10} {
		dir := smalldisktest.Mount(t, 24)
		texts := clearedAndKilled(t, dir)
		taken := occupy(t, dir)
		info, err := os.Stat(taken)
		if err == nil {
			err = os.Truncate(taken, info.Size()-spare)
		}
		if err != nil {
			t.Fatal(err)
		}
		found, got := reopenedTexts(t, dir)
		if found.Damaged > 0 || found.Torn || !maps.Equal(got, texts) {
			t.Errorf("%d bytes of space: got %+v and %v, want %v", spare, found, got, texts)
		}
		s, err := openStore(dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(filepath.Join(dir, rebuildName)); !errors.Is(err, fs.ErrNotExist) || !s.moreWork {
			t.Errorf("%d bytes of space: the rebuilt file: got %v, more work %v; want no file and more work", spare, err, s.moreWork)
		}
		closed(t, over(t, s))
		reopenedWhole(t, dir, texts)
	}
}

// TestARefusedPutSaysThatTheDiskIsFull, and only then: see refused for another cause.
func TestARefusedPutSaysThatTheDiskIsFull(t *testing.T) {
	dir := smalldisktest.Mount(t, 24)
	s := begun(t, dir)
	s.reserve.release()
	taken := occupy(t, dir)
	_, err := s.Commit([]localengine.Change{added(1, "refused")})
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("got %v, want the disk is full", err)
	}
	if err := os.Remove(taken); err != nil {
		t.Fatal(err)
	}
	s.abandon(t)
}

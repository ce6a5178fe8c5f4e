package filequeue

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// TestAFullDiskCanBeDrained fills a disk to the last page, stops and starts, takes
// every message out, and fills it again.
func TestAFullDiskCanBeDrained(t *testing.T) {
	dir := smallDisk(t)
	e := opened(t, dir)
	n := fillToTheEnd(t, made(t, e, "full"))
	closed(t, e)

	e = opened(t, dir)
	q := e.Queue(queue.Name{Account: account, Queue: "full"})
	left := n
	for {
		batch, err := q.Dequeue(t.Context(), queue.MaxBatch, time.Hour)
		if err != nil {
			t.Fatalf("%d of %d are left: %v", left, n, err)
		}
		if len(batch) == 0 {
			break
		}
		for _, m := range batch {
			if err := q.Delete(t.Context(), m.Lease); err != nil {
				t.Fatalf("%d of %d are left: %v", left, n, err)
			}
			left--
		}
	}
	if left != 0 {
		t.Errorf("%d of %d messages are lost", left, n)
	}
	if again := fillToTheEnd(t, q); again < n/2 {
		t.Errorf("%d messages fitted at first, %d after they were drained", n, again)
	}
	closed(t, e)
}

// smallDisk is a directory on a disk of 24 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m")
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		if azuritetest.Required("mount") {
			t.Fatal(err)
		}
		t.Skipf("NOT TRIED ON A DISK THAT IS FULL: that takes the right to mount one: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestAFullDiskAndAKill: a store is killed on a full disk, opened again there, killed after
// every ten deletes, and takes puts again when it is empty.
func TestAFullDiskAndAKill(t *testing.T) {
	dir := smallDisk(t)
	s, texts := begun(t, dir), map[uint64]string{}
	for n := uint64(1); ; n++ {
		if _, err := s.Commit([]localqueue.Change{added(n, largeText)}); errors.Is(err, syscall.ENOSPC) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		texts[n] = largeText
	}
	s.abandon(t)
	reopenedWhole(t, dir, texts)
	for len(texts) > 0 {
		s, err := Open(dir)
		if err != nil {
			t.Fatalf("%d are left: %v", len(texts), err)
		}
		if found := s.Found(); found.Damaged > 0 || found.Torn || found.Messages != len(texts) {
			t.Fatalf("found %+v, want %d messages", found, len(texts))
		}
		for sequence := range texts {
			commit(t, s, localqueue.MessageRemoved(key(sequence)))
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

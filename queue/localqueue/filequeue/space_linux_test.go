package filequeue

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/queue"
)

// TestAFullDiskCanBeDrained fills a disk to the last page, stops and starts, takes
// every message out, and fills it again.
func TestAFullDiskCanBeDrained(t *testing.T) {
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

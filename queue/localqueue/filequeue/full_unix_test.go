//go:build darwin || linux

package filequeue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/queue"
)

// TestAFullDiskLosesNothing limits the file size: first below what the file must grow to, then
// below its current size.
func TestAFullDiskLosesNothing(t *testing.T) {
	if last := runTask(t, "fill", memoryDirectory(t)); last != "all is there" {
		t.Errorf("last line: got %q, want all is there", last)
	}
}

// TestARecordThatDoesNotFitIsNotReplayed: a commit that was written only in part is not recovered,
// even after a kill.
func TestARecordThatDoesNotFitIsNotReplayed(t *testing.T) {
	dir := memoryDirectory(t)
	runTask(t, "half", dir)
	if found, texts := reopenedTexts(t, dir); found.Damaged > 0 || found.Torn || len(texts) != 2 || texts[1] != "before" || texts[3] != "after" {
		t.Errorf("got %+v and %d texts, want before and after without damage", found, len(texts))
	}
}

func init() { tasks["fill"], tasks["half"] = fillTheDisk, writeHalf }

// limitedStore returns a new store with one message, in a process that survives [limit].
func limitedStore(dir string) (*store, error) {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := openStore(dir)
	if err != nil {
		return nil, err
	}
	for _, changes := range [][]localengine.Change{
		{localengine.SecretSaved{7}, localengine.QueueSaved{Ordinal: 1, Name: queue.Name{Account: account, Queue: "limited"}}},
		{added(1, "before")},
	} {
		if _, err := s.Commit(changes); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func writeHalf(dir, _ string) error {
	s, err := limitedStore(dir)
	if err != nil {
		return err
	}
	commit := func(changes ...localengine.Change) error { _, err := s.Commit(changes); return err }
	if err := limit(8 << 10); err != nil { // in the middle of the next record
		return err
	}
	err = commit(added(2, strings.Repeat("x", 60_000)))
	if err == nil || !strings.Contains(err.Error(), syscall.EFBIG.Error()) || errors.Is(err, localengine.ErrUncertain) || s.logs[s.active].size < 60_000 {
		return fmt.Errorf("half a record: %w", err)
	}
	return errors.Join(limit(1<<40), commit(added(3, "after"))) // the process ends without closing anything
}

func fillTheDisk(dir, _ string) error {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := openStore(dir)
	if err != nil {
		return err
	}
	e, err := engineOver(s, nil)
	if err != nil {
		return err
	}
	q := e.Queue(queue.Name{Account: account, Queue: "full"})
	if err := q.Create(context.Background(), nil); err != nil {
		return err
	}
	f := filling{queue: q, kept: map[string]queue.Lease{}}
	for _, step := range []func() error{
		f.some,
		func() error { return limit(8 << 20) }, f.refused, // the tree cannot grow
		func() error { return limit(1 << 40) }, f.acceptedAgain,
		f.remove, f.describe, // the log is empty then
		func() error { return limit(2 * uint64(os.Getpagesize())) }, f.notDescribed, // of the tree only the meta pages can be written
		func() error { return limit(1 << 40) }, f.acceptedAgain, f.describe, f.some,
		e.Close,
		func() error { return f.reopened(dir) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	fmt.Println("all is there")
	return nil
}

func limit(bytes uint64) error {
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &now); err != nil {
		return err
	}
	now.Cur = bytes
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &now)
}

// filling is a queue and its accepted messages.
type filling struct {
	queue queue.Manager
	kept  map[string]queue.Lease
	sent  int

	described string // its metadata
}

func (f *filling) enqueue() error {
	f.sent++
	text := fmt.Sprint(f.sent, text)
	m, err := f.queue.Enqueue(context.Background(), text, nil)
	if err == nil {
		f.kept[text] = m.Lease
	}
	return err
}

func (f *filling) some() error {
	for range 200 {
		if err := f.enqueue(); err != nil {
			return err
		}
	}
	return nil
}

// refused enqueues until there is no space. The error must say so and be ErrUnavailable, and the
// queue must have the accepted messages and no others.
func (f *filling) refused() error {
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		if err := f.enqueue(); err != nil {
			return f.full(err, "truncate")
		}
	}
	return errors.New("the disk did not become full in a minute")
}

// full checks the error of a call that failed for want of space.
func (f *filling) full(err error, call string) error {
	if !errors.Is(err, queue.ErrUnavailable) || !strings.Contains(err.Error(), syscall.EFBIG.Error()) || !strings.Contains(err.Error(), call) {
		return fmt.Errorf("full: %w", err)
	}
	p, failed := f.queue.Properties(context.Background())
	if failed != nil || p.Depth != int64(len(f.kept)) || p.Metadata["deletes"] != f.described {
		return fmt.Errorf("got %d messages and the metadata %v, want %d and %q: %w", p.Depth, p.Metadata, len(f.kept), f.described, failed)
	}
	fmt.Println(err)
	return nil
}

// describe changes the queue, which is a commit to the tree.
func (f *filling) describe() error {
	deletes := fmt.Sprint(f.sent - len(f.kept))
	err := f.queue.SetMetadata(context.Background(), map[string]string{"deletes": deletes})
	if err == nil {
		f.described = deletes
	}
	return err
}

func (f *filling) notDescribed() error {
	f.sent++ // so that the metadata changes
	return f.full(f.describe(), "write")
}

func (f *filling) remove() error {
	for text, lease := range f.kept {
		if err := f.queue.Delete(context.Background(), lease); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
		if delete(f.kept, text); len(f.kept) < 100 {
			break
		}
	}
	return nil
}

// acceptedAgain waits until the engine tries again.
func (f *filling) acceptedAgain() error {
	var err error
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		if err = f.enqueue(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("refused although there is space: %w", err)
}

func (f *filling) reopened(dir string) error {
	s, err := openStore(dir)
	if err != nil {
		return err
	}
	if found := s.Found(); found.Damaged > 0 || found.Messages != len(f.kept) {
		return fmt.Errorf("got %d messages, want %d, and the damage %v", found.Messages, len(f.kept), found.Damage)
	}
	e, err := engineOver(s, nil)
	if err != nil {
		return err
	}
	q := e.Queue(f.queue.Name())
	for {
		batch, err := q.Dequeue(context.Background(), queue.MaxBatch, time.Hour)
		if err != nil {
			return err
		}
		if len(batch) == 0 {
			break
		}
		for _, m := range batch {
			if _, ours := f.kept[m.Text]; !ours {
				return fmt.Errorf("%.20q was never accepted, or was deleted", m.Text)
			}
			delete(f.kept, m.Text)
		}
	}
	if len(f.kept) > 0 {
		return fmt.Errorf("%d messages are lost", len(f.kept))
	}
	return errors.Join(e.Close(), os.RemoveAll(dir))
}

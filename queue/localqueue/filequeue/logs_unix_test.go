//go:build darwin || linux

package filequeue

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/localengine"
)

// TestLogsBeginLaterWhenTheTreeIsFull: there is space for logs, but not for the tree to record them.
// Until there is, the store works without logs.
func TestLogsBeginLaterWhenTheTreeIsFull(t *testing.T) {
	dir := memoryDirectory(t)
	runTask(t, "begin", dir)
	if found, texts := reopenedTexts(t, dir); found.Damaged > 0 || found.Torn || len(texts) != 3 || texts[1] != "before" || texts[3] != "in a log" {
		t.Errorf("got %+v and the texts %v, want three without damage", found, texts)
	}
}

func init() { tasks["begin"] = beginWithoutRoom }

func beginWithoutRoom(dir, _ string) error {
	s, err := limitedStore(dir)
	if err != nil {
		return err
	}
	commit := func(changes ...localengine.Change) error { _, err := s.Commit(changes); return err }
	if err := errors.Join(
		s.Close(),
		limit(2*uint64(os.Getpagesize())), // of the tree only the meta pages can be written
	); err != nil {
		return err
	}
	if s, err = openStore(dir); err != nil {
		return fmt.Errorf("opened on a full disk: %w", err)
	}
	if found := s.Found(); s.logsReady || found.Damaged > 0 || found.Messages != 1 {
		return fmt.Errorf("found %+v, logs are ready: %v", found, s.logsReady)
	}
	if err := commit(added(2, "refused")); !errors.Is(err, syscall.EFBIG) || errors.Is(err, localengine.ErrUncertain) {
		return fmt.Errorf("a put on a full disk: %w", err)
	}
	if err := errors.Join(limit(1<<40), commit(added(2, "in the tree")), commit(added(3, "in a log"))); err != nil {
		return err
	}
	if !s.logsReady || s.number == s.checkpointed {
		return fmt.Errorf("with room again, logs are ready: %v; the tree has %d of %d commits", s.logsReady, s.checkpointed, s.number)
	}
	return nil // the process ends without closing anything
}

package agent_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/smalldisktest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling/agent"
)

// A full disk is reported, the old history stays whole, and the agent goes on deciding.
func TestAFullDiskIsReported(t *testing.T) {
	folder := smalldisktest.Mount(t, 1)
	synctest.Test(t, func(t *testing.T) {
		q := created(t, must(localqueue.New(nil)), "jobs")
		p := &platform{n: 1}
		pool := agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: p, Policy: slow}
		a := start(t, agent.Options{Folder: folder}, pool)
		after(2*time.Minute + time.Second)
		before := files(t, folder).texts["pool.history.jsonl"]
		filler := filepath.Join(folder, "filler")
		if err := os.WriteFile(filler, make([]byte, 2<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		fill(t, q, 600)
		after(3 * time.Minute)
		errs := a.errors()
		if len(errs) < 2 || !errors.Is(errs[0], syscall.ENOSPC) || !strings.Contains(errs[0].Error(), "keep the history") {
			t.Errorf("errors: %v", errs)
		}
		if p.get() != 10 {
			t.Errorf("got %d instances, want 10", p.get())
		}
		// What still fits into the file's last block may follow.
		if text := files(t, folder).texts["pool.history.jsonl"]; !bytes.HasPrefix(text, before) {
			t.Errorf("the history of %d bytes did not stay whole: %q became %q", len(before), before, text)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		if text := files(t, folder).texts["pool.history.jsonl"]; len(text) <= len(before) {
			t.Errorf("with space again: the history was %d bytes and is %d", len(before), len(text))
		}
	})
}

package filequeue

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/internal/localengine"
)

var largeText = strings.Repeat("x", 60_000)

// fullStore returns a store as on a full disk: messages of 60 kB fill the file, and the
// reserve cannot be allocated. The cause is not a full disk, but a directory with its name.
func fullStore(t *testing.T, messages uint64) *store {
	t.Helper()
	dir := memoryDirectory(t)
	s := begun(t, dir)
	for n := range messages {
		commit(t, s, added(n, largeText))
	}
	s.reserve.release()
	if err := os.Mkdir(filepath.Join(dir, reserveName), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.abandon(t) })
	return s
}

func refused(t *testing.T, s *store) {
	t.Helper()
	_, err := s.Commit([]localengine.Change{added(9999, "refused")})
	if err == nil || !strings.Contains(err.Error(), "allocate "+s.dir.named(reserveName)) || strings.Contains(err.Error(), "full") {
		t.Fatalf("put: got %v, want that the reserve cannot be allocated, and no full disk", err)
	}
}

// TestAFullDiskThatWasDrainedTakesPutsAgain: the space of deletes that are only in the log is
// available without a restart.
func TestAFullDiskThatWasDrainedTakesPutsAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a large file")
	}
	for how, drain := range map[string]func(t *testing.T, s *store){
		"deleted": func(t *testing.T, s *store) {
			for n := range uint64(150) { // too few for a checkpoint
				commit(t, s, localengine.MessageRemoved(key(n)))
			}
		},
		"deleted between refused puts": func(t *testing.T, s *store) {
			for n := range uint64(150) {
				if n < 80 {
					refused(t, s)
				}
				commit(t, s, localengine.MessageRemoved(key(n)))
			}
		},
		"cleared": func(t *testing.T, s *store) { commit(t, s, localengine.QueueCleared(key(9000))) },
		"cleared in part": func(t *testing.T, s *store) { // the rest takes more commits
			s.moreWork = true
			if err := s.update(func(tx *bolt.Tx) error {
				w := treeTx{digest: s.digest}
				w.begin(tx)
				err := w.addTombstone(key(9000))
				s.digest = w.digest
				return err
			}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			s := fullStore(t, 150)
			refused(t, s)
			drain(t, s)
			commit(t, s, added(10_000, "accepted again"))
		})
	}
}

func TestRefusedPutsTakeOneCheckpoint(t *testing.T) {
	s := fullStore(t, 20)
	commit(t, s, localengine.MessageRemoved(key(7)))
	before := treeCommits(t, s)
	for range 100 {
		refused(t, s)
	}
	if got := treeCommits(t, s) - before; got != 1 {
		t.Errorf("100 refused puts: got %d commits to the tree, want 1", got)
	}
	commit(t, s, localengine.MessageRemoved(key(8)))
	if got := treeCommits(t, s) - before; got != 1 {
		t.Errorf("delete: got a commit to the tree, want one to the log")
	}
}

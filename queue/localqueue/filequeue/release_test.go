package filequeue

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/queue"
)

// keep is a step of docs/releasing.md.
var keep = flag.String("keep", "", "the name under which TestDirectoriesOfReleasesAreRead keeps the directories of this release in testdata/releases, for later ones")

// unpacked returns a directory that another release wrote: testdata/releases has them.
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

// packed writes a directory to testdata/releases, without the lock and the reserve. The unused
// ends of the logs become zeros, so that it is small.
func packed(t *testing.T, name, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join("testdata", "releases", name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	zipped := gzip.NewWriter(f)
	files := tar.NewWriter(zipped)
	for name, content := range contentsOf(t, dir) {
		if name == reserveName {
			continue
		}
		b := []byte(content)
		if strings.HasPrefix(name, logName) {
			noise := make([]byte, len(b)-2*sector) // see preallocate; the header and an end mark were first
			_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
			for n := len(b); n > 2*sector && b[n-1] == noise[n-1-2*sector]; n-- {
				b[n-1] = 0
			}
		}
		if err := files.WriteHeader(&tar.Header{Name: name, Size: int64(len(b)), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(files.Close(), zipped.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// thisRelease returns directories that this release wrote: after a kill and after a clean stop.
func thisRelease(t *testing.T) (dirs map[string]string) {
	t.Helper()
	const week = queue.MaxVisibility
	stopped, ctx := memoryDirectory(t), t.Context()
	e := opened(t, stopped)
	orders, cleared := e.Queue(queue.Name{Account: account, Queue: "orders"}), made(t, e, "cleared")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	put := func(q queue.Manager, text string, o *queue.EnqueueOptions) {
		t.Helper()
		_, err := q.Enqueue(ctx, text, o)
		must(err)
	}
	must(orders.Create(ctx, map[string]string{"owner": "ana", "poisonthreshold": "5"}))
	for i := range 6 {
		put(orders, fmt.Sprintf("tree %d", i), nil)
	}
	put(orders, "large "+strings.Repeat("x", 3000), nil)
	for i := range 5 {
		put(cleared, fmt.Sprintf("cleared %d", i), nil)
	}
	made(t, e, "empty") // a checkpoint
	m, err := orders.Dequeue(ctx, 4, week)
	must(err)
	must(orders.Delete(ctx, m[0].Lease))
	_, err = orders.Update(ctx, m[1].Lease, "rewritten "+m[1].Text, 0)
	must(err)
	must(cleared.Clear(ctx))
	for i := range 6 {
		put(orders, fmt.Sprintf("log %d", i), nil)
	}
	put(orders, "delayed", &queue.EnqueueOptions{Delay: week})
	m, err = orders.Dequeue(ctx, 9, week)
	must(err)
	for _, m := range m {
		switch m.Text {
		case "log 1":
			must(orders.Delete(ctx, m.Lease))
		case "log 2":
			_, err = orders.Update(ctx, m.Lease, "rewritten log 2", 0)
			must(err)
		}
	}
	put(cleared, "after the clear", nil)
	killed := memoryDirectory(t)
	for name, content := range contentsOf(t, stopped) {
		must(os.WriteFile(filepath.Join(killed, name), []byte(content), 0o600))
	}
	closed(t, e)
	return map[string]string{"killed": killed, "stopped": stopped}
}

// releasesHave is the content of the directories of thisRelease and in testdata/releases: the
// dequeue counts by text.
var releasesHave = map[string]int64{
	"rewritten tree 1": 2, "tree 2": 1, "tree 3": 1, "tree 4": 1, "tree 5": 1, "3006 bytes": 1,
	"log 0": 1, "rewritten log 2": 1, "log 3": 1, "log 4": 1, "log 5": 0, "delayed": 0,
	"after the clear": 0,
}

// TestDirectoriesOfReleasesAreRead: also those of a server that was killed. After this release was
// killed too, everything is still there.
func TestDirectoriesOfReleasesAreRead(t *testing.T) {
	if testing.Short() {
		t.Skip("reads directories of several releases")
	}
	dirs := map[string]string{}
	for how, dir := range thisRelease(t) {
		dirs["this release, "+how] = dir
		if *keep != "" {
			packed(t, *keep+"-"+how, dir)
		}
	}
	kept, err := filepath.Glob(filepath.Join("testdata", "releases", "*.tar.gz"))
	if err != nil || len(kept) < 4 {
		t.Fatalf("got %q, %v; want the directories of two releases", kept, err)
	}
	for _, path := range kept {
		name := strings.TrimSuffix(filepath.Base(path), ".tar.gz")
		dirs[name] = unpacked(t, name)
	}
	for name, dir := range dirs {
		t.Run(name, func(t *testing.T) {
			want := maps.Clone(releasesHave)
			for run := range 3 {
				s, err := openStore(dir)
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
				m := localengine.MessageState{MessageKey: localengine.MessageKey{Queue: ordinals["cleared"], Sequence: uint64(1000 + run)}, Expires: 1 << 62}
				commit(t, s, localengine.MessageAdded{MessageState: m, Text: text})
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
			s, err := openStore(dir)
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

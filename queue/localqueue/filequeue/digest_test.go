package filequeue

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/queue"
)

// snapshots returns the file after each of many commits. Each commit changes every bucket that is
// too large to be inline.
func snapshots(t *testing.T) (files [][]byte) {
	t.Helper()
	s := begun(t, memoryDirectory(t))
	defer s.abandon(t)
	s.logsReady = false // so that no log is missing
	for n := range uint64(60) {
		ordinal := n + 2
		_, err := s.checkpoint([]localengine.Change{added(n, "text"), localengine.MessagesUpdated{added(n, "").MessageState},
			localengine.QueueSaved{Ordinal: ordinal, Name: queue.Name{Account: account, Queue: fmt.Sprintf("queue-%d", ordinal)}}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(s.path())
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, b)
	}
	return files
}

// newestRoot returns the root page of the newest commit.
func newestRoot(t *testing.T, file []byte) uint64 {
	t.Helper()
	return commitOf(t, file).Meta.Root
}

// bucketRoots returns the field with the number of each bucket's root page.
func bucketRoots(t *testing.T, file []byte) map[string]field {
	t.Helper()
	size := os.Getpagesize()
	roots := map[string]field{}
	for _, f := range pageFields(file, int(newestRoot(t, file))*size, "root") {
		var entry int
		if n, _ := fmt.Sscanf(f.what, "root entry %d root", &entry); n == 1 && f.what == fmt.Sprintf("root entry %d root", entry) && f.get(file) != 0 {
			element := int(newestRoot(t, file))*size + pageHeader + entry*elementSize
			at, length := binary.NativeEndian.Uint32(file[element+4:]), binary.NativeEndian.Uint32(file[element+8:])
			roots[string(file[element+int(at):][:length])] = f
		}
	}
	return roots
}

// TestAPageOfAnEarlierCommitIsDetected: it is valid by itself, and so are its records.
func TestAPageOfAnEarlierCommitIsDetected(t *testing.T) {
	if testing.Short() {
		t.Skip("a sweep over pages")
	}
	files := snapshots(t)
	newest, size := files[len(files)-1], os.Getpagesize()
	dir := memoryDirectory(t)
	tried := map[string]int{}
	check := func(what string, file []byte) {
		t.Helper()
		tried[what]++
		if found, err := inspectDamagedIn(named{t, what}, dir, file, map[string]bool{"text": true}); err != nil || found.Damaged == 0 {
			t.Errorf("%s: got %+v, %v; want damage reported", what, found, err)
		}
	}
	for _, file := range files[:len(files)-1] {
		page := func(n uint64) []byte { return file[int(n)*size:][:size] }
		for name, root := range bucketRoots(t, newest) {
			old, known := bucketRoots(t, file)[name]
			if !known {
				continue
			}
			n := old.get(file)
			if n == root.get(newest) || !bytes.Equal(page(n), newest[int(n)*size:][:size]) {
				continue // overwritten since
			}
			damaged := bytes.Clone(newest)
			root.set(damaged, n)
			check(name, damaged)
		}
		damaged := bytes.Clone(newest)
		at := int(newestRoot(t, newest)) * size
		copy(damaged[at+8:at+size], page(newestRoot(t, file))[8:]) // all but its number
		check("root", damaged)
	}
	for _, name := range []string{string(bodyBucket), string(headBucket), string(queueBucket), string(nameBucket), "root"} {
		if tried[name] == 0 {
			t.Errorf("no earlier page of %q was tried", name)
		}
	}
	t.Logf("tried %v", tried)
}

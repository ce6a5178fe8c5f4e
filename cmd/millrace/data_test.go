package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestDataDelaysGarbageCollection: only with -data, at least heapSize bytes can be allocated before
// the next collection.
func TestDataDelaysGarbageCollection(t *testing.T) {
	for dir, seldom := range map[string]bool{"": false, t.TempDir(): true} {
		d, err := (&settings{data: dir}).openData()
		if err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		if got := now.NextGC-now.HeapAlloc > heapSize; got != seldom {
			t.Errorf("-data %q: got %d bytes allocated and the next collection at %d", dir, now.HeapAlloc, now.NextGC)
		}
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestDataBehindALinkToNowhere: the error says where the link of the directory or the file leads,
// and a missing volume is not taken for a new directory.
func TestDataBehindALinkToNowhere(t *testing.T) {
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "data")
	for name, target := range map[string]string{link: "/nowhere/data", filepath.Join(dir, "queues.db"): "volume/queues.db"} {
		if err := os.Symlink(target, name); err != nil {
			t.Skip(err)
		}
	}
	for data, want := range map[string]string{link: "data is a symbolic link to /nowhere/data", dir: "queues.db is a symbolic link to volume/queues.db"} {
		if _, err := (&settings{data: data}).openData(); err == nil || !strings.HasPrefix(err.Error(), "-data: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("-data %s: got %v, want %q", data, err, want)
		}
	}
}

package main

import (
	"runtime"
	"testing"
)

// TestDataIsCollectedSeldom: with -data, and only then, the next collection is as far away
// as heapSize is large.
func TestDataIsCollectedSeldom(t *testing.T) {
	for dir, seldom := range map[string]bool{"": false, t.TempDir(): true} {
		d, err := (&settings{data: dir}).openData()
		if err != nil {
			t.Fatal(err)
		}
		runtime.GC()
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		if got := now.NextGC-now.HeapAlloc > heapSize; got != seldom {
			t.Errorf("in %q: %d bytes are there, and the next collection comes at %d", dir, now.HeapAlloc, now.NextGC)
		}
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}
}

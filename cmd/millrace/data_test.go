package main

import (
	"runtime"
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

package metered

import (
	"sync"
	"testing"
	"unsafe"
)

// L-41: a process may listen to many queues, with a Meter for each, and most of them are idle.
func TestAMeterIsSmallUntilItCounts(t *testing.T) {
	var m Meter
	if got := unsafe.Sizeof(m); got > 2048 {
		t.Errorf("got %d bytes, want at most 2,048", got)
	}
	m.count(t.Context(), Dequeue, done) // makes the line
	if n := testing.AllocsPerRun(100, func() { m.count(t.Context(), Dequeue, done) }); n > 0 {
		t.Errorf("got %v allocations to count a request, want none", n)
	}
}

// The first requests of a line may end at the same time.
func TestNoFirstRequestIsLost(t *testing.T) {
	for range 1000 {
		var m Meter
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { m.count(t.Context(), Delete, failed) })
		}
		all.Wait()
		if got := m.Counts().Total().Requests; got != 4 {
			t.Fatalf("got %d requests, want 4", got)
		}
	}
}

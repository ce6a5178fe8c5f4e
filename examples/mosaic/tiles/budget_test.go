package tiles

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestBudgetIsKept(t *testing.T) {
	const total = 100
	b := newBudget(total)
	var used atomic.Int64
	var workers sync.WaitGroup
	for w := range 8 {
		workers.Go(func() {
			for i := range 200 {
				n := b.take(int64((w*37 + i*13) % 250)) // some more than there is
				if u := used.Add(n); u > total {
					t.Errorf("in use: got %d, want at most %d", u, total)
				}
				used.Add(-n)
				b.give(n)
			}
		})
	}
	workers.Wait()
	if b.left != total {
		t.Errorf("left at the end: got %d, want %d", b.left, total)
	}
}

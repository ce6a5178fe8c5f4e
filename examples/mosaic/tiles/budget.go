package tiles

import "sync"

// budget shares a number of bytes between goroutines that decode pictures.
type budget struct {
	mu    sync.Mutex
	freed *sync.Cond
	total int64
	left  int64
}

func newBudget(total int64) *budget {
	b := &budget{total: total, left: total}
	b.freed = sync.NewCond(&b.mu)
	return b
}

// take waits until n bytes are free. A picture larger than the whole budget
// takes all of it, and so is decoded while nothing else is. It returns what to
// give back.
func (b *budget) take(n int64) int64 {
	n = min(n, b.total)
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.left < n {
		b.freed.Wait()
	}
	b.left -= n
	return n
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left += n
	b.freed.Broadcast()
}

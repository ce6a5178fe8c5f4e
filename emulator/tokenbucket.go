package emulator

import (
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// bucket holds what may be taken: rate a second flow in, and a second's worth at
// most stays. It counts in billionths, so that a nanosecond brings rate of them
// and nothing is ever rounded.
type tokenBucket struct {
	rate int64

	mu      sync.Mutex
	tokens  int64     // guarded by mu; below 0 after a debt
	updated time.Time // guarded by mu; when level was right
}

// unit is one message or request, in billionths.
const oneToken = int64(time.Second)

func newTokenBucket(rate int) *tokenBucket {
	return &tokenBucket{rate: int64(rate), tokens: int64(rate) * oneToken, updated: time.Now()}
}

// fill lets in what has come since. Called with mu held.
func (b *tokenBucket) refill() {
	now := time.Now()
	full := b.rate * oneToken
	// What is missing may be more than a second's worth, after a debt; compare
	// times first, for the product of a long one would overflow.
	passed := now.Sub(b.updated)
	if passed >= time.Duration((full-b.tokens)/b.rate)+1 {
		b.tokens = full
	} else if passed > 0 {
		b.tokens = min(full, b.tokens+int64(passed)*b.rate)
	}
	b.updated = now
}

// take takes one, if there is one.
func (b *tokenBucket) take() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill()
	if b.tokens < oneToken {
		return false
	}
	b.tokens -= oneToken
	return true
}

// charge takes n more, whether they are there or not; a negative n gives back.
func (b *tokenBucket) charge(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.rate*oneToken, b.tokens-int64(n)*oneToken)
}

// isFull reports whether it is as good as a new one.
func (b *tokenBucket) isFull() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill()
	return b.tokens == b.rate*oneToken
}

// queueBuckets has a bucket for each queue that was busy in the last seconds.
type queueBuckets struct {
	rate int

	mu      sync.Mutex
	buckets map[queue.Name]*tokenBucket // guarded by mu
	pruneAt int                         // guarded by mu; at how many buckets to throw out full ones
}

const minPrune = 1024

func newQueueBuckets(rate int) *queueBuckets {
	return &queueBuckets{rate: rate, buckets: map[queue.Name]*tokenBucket{}, pruneAt: minPrune}
}

// of returns the bucket of a queue. A bucket that is full is the same as a new
// one, so those are thrown out now and then: names cost nothing to make up.
func (q *queueBuckets) of(name queue.Name) *tokenBucket {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := q.buckets[name]
	if b != nil {
		return b
	}
	if len(q.buckets) >= q.pruneAt {
		for name, b := range q.buckets {
			if b.isFull() {
				delete(q.buckets, name)
			}
		}
		q.pruneAt = max(minPrune, 2*len(q.buckets))
	}
	b = newTokenBucket(q.rate)
	q.buckets[queue.Name{Account: strings.Clone(name.Account), Queue: strings.Clone(name.Queue)}] = b
	return b
}

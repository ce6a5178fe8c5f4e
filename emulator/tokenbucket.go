package emulator

import (
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// tokenBucket is a token bucket for rate tokens a second, and at most one second's worth. It
// counts billionths of a token, so that a nanosecond adds rate of them without rounding.
type tokenBucket struct {
	rate int64

	mu      sync.Mutex
	tokens  int64     // in billionths, negative after a debt; guarded by mu
	updated time.Time // when tokens was current; guarded by mu
}

// oneToken is one message or request, in billionths.
const oneToken = int64(time.Second)

func newTokenBucket(rate int) *tokenBucket {
	return &tokenBucket{rate: int64(rate), tokens: int64(rate) * oneToken, updated: time.Now()}
}

// refill adds the tokens since updated. mu must be held.
func (b *tokenBucket) refill() {
	now := time.Now()
	full := b.rate * oneToken
	// After a debt more than a second's worth may be missing. Compare times first:
	// the product would overflow for a long time.
	passed := now.Sub(b.updated)
	if passed >= time.Duration((full-b.tokens)/b.rate)+1 {
		b.tokens = full
	} else if passed > 0 {
		b.tokens = min(full, b.tokens+int64(passed)*b.rate)
	}
	b.updated = now
}

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

// charge takes n more tokens and may leave a debt; a negative n returns tokens.
func (b *tokenBucket) charge(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.rate*oneToken, b.tokens-int64(n)*oneToken)
}

// isFull reports whether the bucket is full, like a new one.
func (b *tokenBucket) isFull() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill()
	return b.tokens == b.rate*oneToken
}

// queueBuckets has a bucket for each recently busy queue.
type queueBuckets struct {
	rate int

	mu      sync.Mutex
	buckets map[queue.Name]*tokenBucket // guarded by mu
	pruneAt int                         // number of buckets at which full ones are removed; guarded by mu
}

const minPrune = 1024

func newQueueBuckets(rate int) *queueBuckets {
	return &queueBuckets{rate: rate, buckets: map[queue.Name]*tokenBucket{}, pruneAt: minPrune}
}

// of returns a queue's bucket. Full buckets equal new ones and are removed now and then, because
// clients can make up any number of names.
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

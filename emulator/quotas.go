package emulator

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// Quotas are the rates above which the server responds 503 ServerBusy. Microsoft's targets
// (Scalability and performance targets for Queue Storage) are 2,000 messages of 1 KiB a second
// for a queue and 20,000 for an account. The zero value is no quotas.
//
// Each quota is a token bucket with one second's worth of tokens. The response has no Retry-After
// header, because no document promises one for queues.
type Quotas struct {
	// Messages is how many messages of one queue may be put, got or deleted a second. A put or
	// delete counts one, even if it fails; a get counts the messages it returns. A get is refused
	// only if no token is left, and may leave a debt. At most a billion. Defaults to 0, no quota.
	Messages int

	// Requests is how many requests of one account are served a second, including its secondary
	// location. Requests that are not authorized do not count, so they block nobody; nor do
	// preflights and requests that change faults. At most a billion. Defaults to 0, no quota.
	Requests int
}

// maxQuota keeps token counts within an int64.
const maxQuota = 1_000_000_000

// ParseQuotas parses quotas from a text such as
//
//	messages=2000,requests=20000
//
// separated by commas, semicolons or white space, each at most once. An omitted quota, or 0,
// means no quota. The error names the invalid part and a correct form.
func ParseQuotas(text string) (Quotas, error) {
	var q Quotas
	seen := map[string]bool{}
	for piece := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(",; \t\r\n", r) }) {
		name, value, ok := strings.Cut(piece, "=")
		name = strings.ToLower(name)
		var into *int
		switch name {
		case "messages":
			into = &q.Messages
		case "requests":
			into = &q.Requests
		}
		switch {
		case into == nil || !ok:
			return Quotas{}, fmt.Errorf("emulator: quota %s: write messages=2000 (a second and queue) or requests=20000 (a second and account)", quoteShort(piece))
		case seen[name]:
			return Quotas{}, fmt.Errorf("emulator: quota %s: %s is given twice: remove one", quoteShort(piece), name)
		}
		seen[name] = true
		n, err := strconv.Atoi(value)
		if err != nil || !isDigits(value) || n > maxQuota {
			return Quotas{}, fmt.Errorf("emulator: quota %s: %s is not a number from 0 to %d", quoteShort(piece), quoteShort(value), maxQuota)
		}
		*into = n
	}
	return q, nil
}

// String returns the quotas in the syntax of [ParseQuotas]; no quotas are "".
func (q Quotas) String() string {
	var pieces []string
	if q.Messages != 0 {
		pieces = append(pieces, "messages="+strconv.Itoa(q.Messages))
	}
	if q.Requests != 0 {
		pieces = append(pieces, "requests="+strconv.Itoa(q.Requests))
	}
	return strings.Join(pieces, ",")
}

func (q Quotas) check() error {
	for _, one := range []struct {
		name  string
		value int
	}{{"Messages", q.Messages}, {"Requests", q.Requests}} {
		if one.value < 0 || one.value > maxQuota {
			return fmt.Errorf("emulator: Options.Quotas.%s is %d: it must be 0 to %d", one.name, one.value, maxQuota)
		}
	}
	return nil
}

// handleWithinQuota executes the operation and charges its messages to the queue's quota.
func (c *call) handleWithinQuota() *failure {
	switch c.operation {
	case PutMessage, GetMessages, DeleteMessage:
	default:
		return c.verb.handle(c)
	}
	b := c.server.messages.of(c.name())
	if !b.take() {
		c.refusedByQuota()
		return errServerBusy
	}
	f := c.verb.handle(c)
	if c.operation == GetMessages {
		b.charge(c.gotMessages - 1) // one token is taken already; a failed get has 0 messages
	}
	return f
}

func (c *call) refusedByQuota() {
	c.overQuota = true
	c.server.counters.overQuota.Add(1)
}

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

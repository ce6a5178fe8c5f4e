package emulator

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// Limits are how much the service takes in a second before it answers 503
// ServerBusy, with a second's worth at once ("Scalability and performance
// targets for Queue Storage": 2,000 messages of 1 KiB a queue, 20,000 requests
// an account). The zero value means no limits.
type Limits struct {
	// Messages is how many messages of one queue can be put, got, updated and
	// deleted in a second. A GetMessages counts as many as it hands out, which
	// is known only afterwards: the queue is then in debt until they are paid.
	// Defaults to 0, no limit.
	Messages int

	// Requests is how many requests of one account are answered in a second,
	// whatever they ask for. Defaults to 0, no limit.
	Requests int
}

// maxLimitRate is the largest limit: a bucket counts in nanoseconds.
const maxLimitRate = int(time.Second)

// ParseLimits reads limits written for people, "messages=2000,requests=20000":
// either or both, separated by a comma or semicolon, in any order and case. An
// empty text means none. The error names the piece that is wrong and what would
// be right.
func ParseLimits(text string) (Limits, error) {
	var l Limits
	for piece := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ';' }) {
		if piece = strings.TrimSpace(piece); piece == "" {
			continue
		}
		if err := l.parse(piece); err != nil {
			return Limits{}, fmt.Errorf("emulator: limit %q: %w", piece, err)
		}
	}
	return l, nil
}

func (l *Limits) parse(piece string) error {
	name, value, _ := strings.Cut(piece, "=")
	name = strings.TrimSpace(name)
	var field *int
	switch {
	case strings.EqualFold(name, "messages"):
		field = &l.Messages
	case strings.EqualFold(name, "requests"):
		field = &l.Requests
	default:
		return fmt.Errorf("%q is no limit: use messages=2000 for messages of a queue a second, requests=20000 for requests of an account a second", name)
	}
	n, err := number(strings.TrimSpace(value))
	if err != nil || n > maxLimitRate {
		return fmt.Errorf("%q is not how many a second: write a whole number from 1 to %d, or leave the limit out", value, maxLimitRate)
	}
	if *field != 0 {
		return fmt.Errorf("%s is there twice: write it once", name)
	}
	*field = n
	return nil
}

// limits are the buckets of a server.
type limits struct {
	messages time.Duration // what a message costs; 0 for no limit
	requests time.Duration // what a request costs; 0 for no limit

	mu      sync.Mutex
	buckets map[bucket]time.Time // guarded by mu; when each is full again
}

// bucket is whose limit it is: an account's when the queue is "".
type bucket struct{ account, queue string }

// manyBuckets is how many are kept before those that are full again are thrown
// away.
const manyBuckets = 1024

// newLimits returns nil when there are none.
func newLimits(o *Options) *limits {
	if o == nil || o.Limits.Messages <= 0 && o.Limits.Requests <= 0 {
		return nil
	}
	return &limits{messages: price(o.Limits.Messages), requests: price(o.Limits.Requests), buckets: make(map[bucket]time.Time)}
}

// price is how long it takes for one of n a second to come.
func price(n int) time.Duration {
	if n <= 0 {
		return 0
	}
	return time.Second / time.Duration(min(n, maxLimitRate))
}

// admit takes the price of a request, or says that it is one too many. What a
// GetMessages hands out is paid later.
func (l *limits) admit(c *call) bool {
	if c.known == nil {
		return true // no account of ours
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.requests > 0 && !l.take(bucket{account: c.account}, now, l.requests, l.requests) {
		return false
	}
	if l.messages == 0 {
		return true
	}
	whose := bucket{c.account, c.queue}
	switch c.operation {
	case PutMessage, UpdateMessage, DeleteMessage:
		return l.take(whose, now, l.messages, l.messages)
	case GetMessages:
		return l.take(whose, now, l.messages, 0)
	}
	return true
}

// charge makes a queue pay for messages that have been handed out.
func (l *limits) charge(c *call, messages int) {
	if l.messages == 0 || messages == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.owe(bucket{c.account, c.queue}, time.Now(), time.Duration(messages)*l.messages)
}

// again charges for a request that was done twice.
func (l *limits) again(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.requests > 0 {
		l.owe(bucket{account: c.account}, now, l.requests)
	}
	switch c.operation {
	case PutMessage, UpdateMessage, DeleteMessage:
		if l.messages > 0 {
			l.owe(bucket{c.account, c.queue}, now, l.messages)
		}
	}
}

// take reports whether a bucket holds what is needed, and if so takes the price.
// The caller holds mu. A bucket holds a second: what is missing is the time until
// it is full.
func (l *limits) take(whose bucket, now time.Time, need, price time.Duration) bool {
	if l.buckets[whose].Sub(now) > time.Second-need {
		return false
	}
	if price > 0 {
		l.owe(whose, now, price)
	}
	return true
}

// owe takes the price, though the bucket may not hold it. The caller holds mu.
func (l *limits) owe(whose bucket, now time.Time, price time.Duration) {
	full := l.buckets[whose]
	if full.Before(now) {
		full = now
	}
	if len(l.buckets) >= manyBuckets {
		for other, full := range l.buckets {
			if !full.After(now) {
				delete(l.buckets, other)
			}
		}
	}
	l.buckets[whose] = full.Add(price)
}

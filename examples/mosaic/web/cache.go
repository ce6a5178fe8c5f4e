package web

import (
	"container/list"
	"sync"
)

// cache keeps the values used last, within a number of bytes. It is safe for concurrent use.
type cache[K comparable, V any] struct {
	mu    sync.Mutex
	limit int64
	size  int64               // guarded by mu
	order *list.List          // of *cached, most recent first; guarded by mu
	found map[K]*list.Element // guarded by mu
}

type cached[K comparable, V any] struct {
	key   K
	value V
	size  int64
}

func newCache[K comparable, V any](limit int64) *cache[K, V] {
	return &cache[K, V]{limit: limit, order: list.New(), found: make(map[K]*list.Element)}
}

func (c *cache[K, V]) get(key K) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.found[key]
	if !ok {
		return value, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached[K, V]).value, true
}

// put keeps a value, and drops those not used for the longest time. One that is larger than the cache is the only one then.
func (c *cache[K, V]) put(key K, value V, size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.found[key]; ok {
		c.remove(e)
	}
	c.found[key] = c.order.PushFront(&cached[K, V]{key, value, size})
	c.size += size
	for c.size > c.limit && c.order.Len() > 1 {
		c.remove(c.order.Back())
	}
}

// drop forgets the values whose keys match.
func (c *cache[K, V]) drop(match func(K) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.found {
		if match(key) {
			c.remove(e)
		}
	}
}

// remove is called with the lock held.
func (c *cache[K, V]) remove(e *list.Element) {
	v := c.order.Remove(e).(*cached[K, V])
	delete(c.found, v.key)
	c.size -= v.size
}

package localqueue

import (
	"math"
	"sync/atomic"
	"time"
)

// timeline orders messages by (instant, sequence) and stores each message's position in it,
// so that any one can be moved or removed in O(log n). Messages that arrive in order are in
// a [run], the others in a binary heap. Keys are stored beside the pointers, so that a
// comparison does not load the message into the cache.
type timeline struct {
	index index
	run   run
	heap  []entry
}

// index says which timeline a position in message.position belongs to.
type index int

const (
	byDue index = iota
	byExpiry
	indexes
)

// absent is the position of a message that is not in the timeline. Positions in the heap
// are its indexes; positions in the run are below absent.
const absent = -1

// inRun converts the number of an entry of the run into a position, and back.
func inRun(number int) int { return absent - 1 - number }

type entry struct {
	at       instant
	sequence uint64
	message  *message
}

func (e *entry) before(f *entry) bool {
	return e.at < f.at || e.at == f.at && e.sequence < f.sequence
}

func (t *timeline) len() int { return t.run.live + len(t.heap) }

// first returns the earliest entry. The timeline must not be empty.
func (t *timeline) first() entry {
	if t.run.live == 0 {
		return t.heap[0]
	}
	e := &t.run.entries[t.run.first].entry
	if len(t.heap) > 0 && t.heap[0].before(e) {
		return t.heap[0]
	}
	return *e
}

// add inserts m, which must be absent, at the end of the run if it belongs there. Use put
// for a message that becomes visible in the future: at the end of the run it would keep
// later ones out.
func (t *timeline) add(m *message, at instant) {
	if !t.run.follows(at, m.sequence) {
		t.put(m, at)
		return
	}
	m.position[t.index] = inRun(t.run.add(entry{at: at, sequence: m.sequence, message: m}))
}

// put inserts m, or moves it if it is there already.
func (t *timeline) put(m *message, at instant) {
	i := m.position[t.index]
	if i < absent {
		t.remove(m)
		i = absent
	}
	if i == absent {
		i = len(t.heap)
		t.heap = append(t.heap, entry{sequence: m.sequence, message: m})
		m.position[t.index] = i
	}
	t.heap[i].at = at
	if !t.up(i) {
		t.down(i)
	}
}

// remove removes m. It does nothing if m is absent.
func (t *timeline) remove(m *message) {
	i := m.position[t.index]
	m.position[t.index] = absent
	switch {
	case i == absent:
		return
	case i < absent:
		t.run.remove(inRun(i))
		t.run.tidy(t.index)
		return
	}
	last := len(t.heap) - 1
	moved := t.heap[last]
	t.heap[last] = entry{} // release the message to the garbage collector
	t.heap = t.heap[:last]
	if i == last {
		return
	}
	t.set(i, moved)
	if !t.up(i) {
		t.down(i)
	}
}

func (t *timeline) set(i int, e entry) {
	t.heap[i] = e
	e.message.position[t.index] = i
}

// up sifts the entry at i up and reports whether it moved.
func (t *timeline) up(i int) bool {
	start, e := i, t.heap[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&t.heap[parent]) {
			break
		}
		t.set(i, t.heap[parent])
		i = parent
	}
	if i == start {
		return false
	}
	t.set(i, e)
	return true
}

// down sifts the entry at i down.
func (t *timeline) down(i int) {
	start, e := i, t.heap[i]
	for {
		child := 2*i + 1
		if child >= len(t.heap) {
			break
		}
		if right := child + 1; right < len(t.heap) && t.heap[right].before(&t.heap[child]) {
			child = right
		}
		if !t.heap[child].before(&e) {
			break
		}
		t.set(i, t.heap[child])
		i = child
	}
	if i != start {
		t.set(i, e)
	}
}

// earliest appends the first n messages at or before the limit, in order, without changing
// the timeline. It walks the run from its front and the heap from its top with a small
// frontier, so that the cost depends on n and not on the depth.
func (t *timeline) earliest(to []*message, n int, limit instant) []*message {
	frontier := make([]int, 0, 2*n+1) // heap indexes whose ancestors were all taken
	if len(t.heap) > 0 {
		frontier = append(frontier, 0)
	}
	for next := t.run.first; n > 0; n-- {
		var e *entry
		best := 0
		for k, i := range frontier {
			if e == nil || t.heap[i].before(e) {
				e, best = &t.heap[i], k
			}
		}
		fromRun := next < len(t.run.entries) && (e == nil || t.run.entries[next].entry.before(e))
		if fromRun {
			e = &t.run.entries[next].entry
		}
		if e == nil || e.at > limit {
			break
		}
		to = append(to, e.message)
		if fromRun {
			next = t.run.next(next + 1)
			continue
		}
		i := frontier[best]
		frontier[best] = frontier[len(frontier)-1]
		frontier = frontier[:len(frontier)-1]
		for child := 2*i + 1; child <= 2*i+2 && child < len(t.heap); child++ {
			frontier = append(frontier, child)
		}
	}
	return to
}

// clock is the engine's clock. It advances with the monotonic clock of the process and
// starts at the wall clock, but never before a time that the store has from an earlier run:
// so a visible message stays visible, and a hidden one stays hidden for as long as was
// asked for.
//
// Times are shown by the wall clock, which is what clients have: shown subtracts the
// offset.
type clock struct {
	start time.Time // with both readings
	first instant   // the engine's time at start
	wall  func(time.Time) instant

	offset atomic.Int64 // the engine's time minus the wall clock, after its last step
}

// minClockStep, in nanoseconds, is the least difference that counts as setting the wall
// clock. Anything below is clock discipline such as NTP.
const minClockStep = int64(time.Second)

// newClock returns a clock that starts now, or at the given time of an earlier run if that
// is later.
func newClock(earlier instant) *clock {
	c := &clock{wall: wallTime}
	c.start = time.Now()
	wall := c.wall(c.start)
	c.first = max(wall, earlier)
	c.offset.Store(int64(c.first - wall))
	return c
}

// now returns the engine's time.
func (c *clock) now() instant {
	at := time.Now()
	now := c.first + instant(at.Sub(c.start))
	ahead := int64(now - c.wall(at))
	if d := ahead - c.offset.Load(); d > minClockStep || d < -minClockStep {
		c.offset.Store(ahead)
	}
	return now
}

// shown returns an instant as the service shows it: by the wall clock, truncated to whole
// seconds, in UTC.
func (c *clock) shown(i instant) time.Time {
	if i == never {
		return forever
	}
	return time.Unix((int64(i)-c.offset.Load())/int64(time.Second), 0).UTC()
}

// maxWallSeconds, in seconds since 1970, is the latest wall clock that the engine accepts:
// an instant must still be able to hold the longest TTL.
const maxWallSeconds = 6_942_585_600 // 2190

// wallTime returns the wall clock as an instant, limited to 1970…2190: a machine whose
// clock battery is empty may report anything.
func wallTime(t time.Time) instant {
	switch seconds := t.Unix(); {
	case seconds < 0:
		return 0
	case seconds > maxWallSeconds:
		return instant(maxWallSeconds * int64(time.Second))
	default:
		return instant(t.UnixNano())
	}
}

// instant is a point in time by the engine's clock, in nanoseconds since 1970. It takes 8
// bytes instead of the 24 of a time.Time, for each message several times, and is compared
// by one instruction.
type instant int64

// never is the expiry of a message without a TTL.
const never instant = math.MaxInt64

// forever is how the service shows never (Put Message, TTL -1).
var forever = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// after adds whole seconds. The port's limits, seven days of visibility and 2³¹ seconds of
// TTL, cannot overflow it.
func (i instant) after(seconds int64) instant { return i + instant(seconds*int64(time.Second)) }

// table holds messages by sequence. Sequences of one queue are consecutive, so it is a map
// of small blocks: it has a fraction of the entries of a map of messages, which at a
// million messages saves several cache misses for each lookup. The zero value is empty and
// allocates nothing.
type table struct {
	blocks    map[uint64]*block
	len       int
	maxBlocks int // the most blocks since the map was made
}

// blockSize balances the entries of the map against the memory that a single remaining
// message keeps.
const blockSize = 32

type block struct {
	messages [blockSize]*message
	len      int
}

func (t *table) get(sequence uint64) *message {
	if b := t.blocks[sequence/blockSize]; b != nil {
		return b.messages[sequence%blockSize]
	}
	return nil
}

// put adds a message that is not in the table.
func (t *table) put(m *message) {
	if t.blocks == nil { // an idle queue among ten thousand costs next to nothing
		t.blocks = make(map[uint64]*block)
	}
	b := t.blocks[m.sequence/blockSize]
	if b == nil {
		b = &block{}
		t.blocks[m.sequence/blockSize] = b
		t.maxBlocks = max(t.maxBlocks, len(t.blocks))
	}
	b.messages[m.sequence%blockSize] = m
	b.len++
	t.len++
}

// remove removes a message that is in the table. A map never shrinks by itself, so a large
// one is released when it is empty.
func (t *table) remove(sequence uint64) {
	b := t.blocks[sequence/blockSize]
	b.messages[sequence%blockSize] = nil
	b.len--
	t.len--
	if b.len == 0 {
		delete(t.blocks, sequence/blockSize)
	}
	if t.len == 0 && t.maxBlocks > shrinkAbove/blockSize {
		*t = table{}
	}
}

package localqueue

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

package localqueue

// timeline is messages by (instant, sequence), and knows where in it each
// message stands, so that one in the middle can be moved or removed in
// O(log n). Those that come in order are a [run], the others a binary heap. The
// keys are kept beside the pointers: comparing them then does not touch the
// messages, which a deep queue has long lost from the cache.
type timeline struct {
	index index
	run   run
	heap  []entry
}

// place says which of a message's two positions belongs to the timeline.
type index int

const (
	byDue index = iota
	byExpiry
	indexes
)

// absent is the position of a message that is not in the timeline. Positions in
// the heap are its indexes; those in the run are below absent.
const absent = -1

// inRun turns the number of an entry of the run into a position, and back.
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

// add puts in m, which must be absent, behind all others of the run if it
// follows them. What lies in the future would keep those enqueued after it out
// of the run: put is for that.
func (t *timeline) add(m *message, at instant) {
	if !t.run.follows(at, m.sequence) {
		t.put(m, at)
		return
	}
	m.position[t.index] = inRun(t.run.add(entry{at: at, sequence: m.sequence, message: m}))
}

// put adds m, or moves it when it is there already.
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

// remove takes m out; it is fine when m is not there.
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
	t.heap[last] = entry{} // let the collector have the message
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

// up lets the entry at i rise to its place and reports whether it moved.
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

// down lets the entry at i sink to its place.
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

// earliest appends the n first messages that stand at or before the limit, in
// order, without changing the order of the timeline. It walks the run from its
// front and the heap down from its top with a small frontier, so that the cost
// depends on n and not on the depth.
func (t *timeline) earliest(to []*message, n int, limit instant) []*message {
	frontier := make([]int, 0, 2*n+1) // indexes of the heap whose parents were all taken
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

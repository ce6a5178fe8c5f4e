package localqueue

// timeline is a binary heap of messages by (instant, sequence) that knows where
// in it each message stands, so that one in the middle can be moved or removed
// in O(log n). The keys are kept beside the pointers: comparing them then does
// not touch the messages, which a deep queue has long lost from the cache.
type timeline struct {
	which   place
	entries []entry
}

// place says which of a message's two positions belongs to the timeline.
type place int

const (
	byDue place = iota
	byExpiry
	places
)

// absent is the position of a message that is not in the timeline.
const absent = -1

type entry struct {
	at       instant
	sequence uint64
	message  *message
}

func (e *entry) before(f *entry) bool {
	return e.at < f.at || e.at == f.at && e.sequence < f.sequence
}

func (t *timeline) len() int { return len(t.entries) }

// first returns the earliest entry. The timeline must not be empty.
func (t *timeline) first() entry { return t.entries[0] }

// put adds m, or moves it when it is there already.
func (t *timeline) put(m *message, at instant) {
	i := m.position[t.which]
	if i == absent {
		i = len(t.entries)
		t.entries = append(t.entries, entry{sequence: m.sequence, message: m})
		m.position[t.which] = i
	}
	t.entries[i].at = at
	if !t.up(i) {
		t.down(i)
	}
}

// remove takes m out; it is fine when m is not there.
func (t *timeline) remove(m *message) {
	i := m.position[t.which]
	if i == absent {
		return
	}
	m.position[t.which] = absent
	last := len(t.entries) - 1
	moved := t.entries[last]
	t.entries[last] = entry{} // let the collector have the message
	t.entries = t.entries[:last]
	if i == last {
		return
	}
	t.set(i, moved)
	if !t.up(i) {
		t.down(i)
	}
}

func (t *timeline) set(i int, e entry) {
	t.entries[i] = e
	e.message.position[t.which] = i
}

// up lets the entry at i rise to its place and reports whether it moved.
func (t *timeline) up(i int) bool {
	start, e := i, t.entries[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !e.before(&t.entries[parent]) {
			break
		}
		t.set(i, t.entries[parent])
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
	start, e := i, t.entries[i]
	for {
		child := 2*i + 1
		if child >= len(t.entries) {
			break
		}
		if right := child + 1; right < len(t.entries) && t.entries[right].before(&t.entries[child]) {
			child = right
		}
		if !t.entries[child].before(&e) {
			break
		}
		t.set(i, t.entries[child])
		i = child
	}
	if i != start {
		t.set(i, e)
	}
}

// earliest appends the n first messages that stand at or before the limit, in
// order, without changing the timeline. It walks down from the top with a small
// frontier, so that the cost depends on n and not on the depth.
func (t *timeline) earliest(to []*message, n int, limit instant) []*message {
	if len(t.entries) == 0 {
		return to
	}
	frontier := make([]int, 1, 2*n+1) // indexes whose parents were all taken
	for ; n > 0 && len(frontier) > 0; n-- {
		best := 0
		for k := range frontier {
			if t.entries[frontier[k]].before(&t.entries[frontier[best]]) {
				best = k
			}
		}
		i := frontier[best]
		if t.entries[i].at > limit {
			break
		}
		to = append(to, t.entries[i].message)
		frontier[best] = frontier[len(frontier)-1]
		frontier = frontier[:len(frontier)-1]
		for child := 2*i + 1; child <= 2*i+2 && child < len(t.entries); child++ {
			frontier = append(frontier, child)
		}
	}
	return to
}

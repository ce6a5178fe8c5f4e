package localqueue

// run is the sorted part of a timeline: messages enqueued one after the other, which is
// most of a deep queue. Appending, taking the first and removing any take the same time at
// any depth, where a heap of a million would miss the cache at each of its twenty levels.
//
// An entry removed from the middle leaves a hole, a nil message, until the hole is first or
// there are more holes than messages.
type run struct {
	entries []slot
	first   int // index of the first message; all entries before it are holes
	offset  int // added to an index of entries gives a number that never changes
	live    int // the number of entries that are not holes
}

// slot is an entry or a hole.
type slot struct {
	entry
	skip int // in a hole: distance to the next slot that may be a message
}

func (r *run) follows(at instant, sequence uint64) bool {
	if r.live == 0 {
		return true
	}
	last := &r.entries[len(r.entries)-1] // a hole keeps its key
	return last.at < at || last.at == at && last.sequence < sequence
}

// add appends an entry and returns its number, for remove.
func (r *run) add(e entry) int {
	if r.live == 0 {
		r.clear()
	}
	r.entries = append(r.entries, slot{entry: e})
	r.live++
	return r.offset + len(r.entries) - 1
}

// clear removes all holes when there is nothing else. Numbers continue.
func (r *run) clear() {
	r.offset += len(r.entries)
	r.entries = r.entries[:0]
	if cap(r.entries) > shrinkAbove {
		r.entries = nil
	}
	r.first = 0
}

// remove makes a hole. The timeline calls tidy afterwards.
func (r *run) remove(number int) {
	i := number - r.offset
	r.entries[i].message, r.entries[i].skip = nil, 1
	r.live--
	if i == r.first {
		r.first = r.next(i)
	}
}

// next returns the index of the first message at or after i, or the length. It stores the
// distance in the hole, so that no hole is walked twice.
func (r *run) next(i int) int {
	start := i
	for i < len(r.entries) && r.entries[i].message == nil {
		i += r.entries[i].skip
	}
	if i > start {
		r.entries[start].skip = i - start
	}
	return i
}

// tidy removes the holes once they outnumber the messages, and updates the positions of the
// messages that moved. Each hole was a message once, so the cost is O(1) for each removed
// message.
func (r *run) tidy(which index) {
	if r.live == 0 {
		r.clear()
		return
	}
	if len(r.entries) <= shrinkAbove || r.live > len(r.entries)/2 {
		return
	}
	to := r.entries[:0]
	if cap(r.entries) > 4*r.live { // leave room to grow, not the peak
		to = make([]slot, 0, 2*r.live)
	}
	for i := r.first; i < len(r.entries); i = r.next(i + 1) {
		e := r.entries[i]
		e.message.position[which] = inRun(r.offset + len(to))
		to = append(to, e)
	}
	clear(r.entries[min(len(to), len(r.entries)):])
	r.entries, r.first = to, 0
}

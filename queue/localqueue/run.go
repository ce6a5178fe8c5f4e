package localqueue

// run is the part of a timeline that came in order already: messages enqueued
// one after the other, which is most of a deep queue. Appending to it, taking
// its first and removing any one cost the same at any depth, where a heap of a
// million would miss the cache at each of its twenty levels.
//
// An entry that was removed from the middle stays behind as a hole, a nil
// message, until it comes to the front or there are more holes than messages.
type run struct {
	entries []slot
	first   int // of the first message in entries; all before it are holes
	offset  int // what to add to an index of entries for a number that stays
	live    int // entries that are no holes
}

// slot is an entry, or a hole.
type slot struct {
	entry
	skip int // in a hole: how far the next slot is that may be none
}

// follows reports whether (at, sequence) may be appended.
func (r *run) follows(at instant, sequence uint64) bool {
	if r.live == 0 {
		return true
	}
	last := &r.entries[len(r.entries)-1] // a hole keeps its key
	return last.at < at || last.at == at && last.sequence < sequence
}

// add appends and returns the number by which to remove.
func (r *run) add(e entry) int {
	if r.live == 0 {
		r.clear()
	}
	r.entries = append(r.entries, slot{entry: e})
	r.live++
	return r.offset + len(r.entries) - 1
}

// clear forgets all holes, when there is nothing else. Numbers go on.
func (r *run) clear() {
	r.offset += len(r.entries)
	r.entries = r.entries[:0]
	if cap(r.entries) > shrinkAbove {
		r.entries = nil
	}
	r.first = 0
}

// remove makes a hole. The timeline calls tidy when it is done.
func (r *run) remove(number int) {
	i := number - r.offset
	r.entries[i].message, r.entries[i].skip = nil, 1
	r.live--
	if i == r.first {
		r.first = r.next(i)
	}
}

// next returns the index of the first message at or after i, or the length. It
// leaves behind how far that was, so that nobody walks the same holes again.
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

// tidy gives the memory of holes back once they are more than the messages, and
// tells the messages that moved. Each was a message once, so the cost is O(1)
// for every message that went.
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

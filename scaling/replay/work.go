package replay

import "math"

// ring are batches by the second that they are due in, of the next few seconds.
type ring []batch

func (r ring) add(at int, b *batch) { r[at%len(r)].add(b) }

func (r ring) take(at int) batch { return r[at%len(r)].take(1) }

// work are the messages whose handlers run, by the second in which these return.
type work struct {
	ends     ring
	spent    []float64 // the seconds that those take which return in a second
	onActive []float64 // how many of them are on instances that do not drain
	active   float64   // sum of onActive
	draining float64   // those on instances that do
}

// newWork returns no work, with handlers that take so many seconds at most.
func newWork(longest float64) work {
	n := int(math.Ceil(longest)) + 2
	return work{ends: make(ring, n), spent: make([]float64, n), onActive: make([]float64, n)}
}

func (w *work) running() float64 { return w.active + w.draining }

// room returns how many handlers can begin in the second that begins at now: of slots that are free or become free within it. A
// handler that takes less than a second leaves its slot to the next within it.
func (w *work) room(now int, slots, handling float64) float64 {
	if handling < 1 {
		return slots / handling
	}
	return max(slots-w.active+w.onActive[now%len(w.onActive)], 0)
}

// begin adds handlers that begin evenly within a second, and return as evenly.
func (w *work) begin(s *started, handling float64) {
	first, last := s.beganFirst+handling, s.beganLast+handling
	rest, took := s.batch, last-first
	for at := math.Floor(first); ; at++ {
		share := 1.0 // of the rest
		if last > at+1 {
			share = (at + 1 - max(first, at)) / (last - max(first, at))
		}
		part := rest.take(share)
		w.put(int(at), &part, handling)
		if share >= 1 || took <= 0 {
			return
		}
	}
}

func (w *work) put(at int, b *batch, handling float64) {
	n, i := b.total(), at%len(w.ends)
	w.ends.add(at, b)
	w.spent[i] += n * handling
	w.onActive[i] += n
	w.active += n
}

// end returns what ends in the second that begins at now, and the seconds that it took.
func (w *work) end(now int) (ended batch, spent float64) {
	i := now % len(w.ends)
	ended, spent = w.ends.take(now), w.spent[i]
	n := ended.total()
	w.active = max(w.active-w.onActive[i], 0)
	w.draining = max(w.draining-(n-w.onActive[i]), 0)
	w.spent[i], w.onActive[i] = 0, 0
	return ended, spent
}

// drain lets this share of the instances finish what they have: their handlers do not make room when they return.
func (w *work) drain(share float64) {
	for i, n := range w.onActive {
		w.onActive[i] = n * (1 - share)
		w.active -= n * share
		w.draining += n * share
	}
	w.active = max(w.active, 0)
}

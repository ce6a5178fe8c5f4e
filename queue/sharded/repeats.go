package sharded

import "hash/maphash"

// maxRepeats is how many messages of unknown outcome are remembered at least.
const maxRepeats = 1024

// repeats remembers where messages were sent whose outcome is unknown, by the hash of their texts. Two
// generations bound it: when the younger one is full it takes the place of the older one. Two texts with
// one hash cost no more than a place that was not chosen by the strategy.
type repeats struct {
	seed         maphash.Seed
	young, older map[uint64]*shard
}

// of returns the shard to which a text was sent with an unknown outcome, or nil.
func (r *repeats) of(text string) *shard {
	if len(r.young)+len(r.older) == 0 { // as ever, but in an outage
		return nil
	}
	h := maphash.String(r.seed, text)
	s := r.young[h]
	if s == nil {
		s = r.older[h]
	}
	if s == nil || s.removed {
		return nil
	}
	return s
}

// remember notes that a text may be in a shard.
func (r *repeats) remember(text string, s *shard) {
	if r.young == nil {
		r.seed, r.young = maphash.MakeSeed(), make(map[uint64]*shard)
	}
	if len(r.young) >= maxRepeats {
		r.older, r.young = r.young, make(map[uint64]*shard)
	}
	r.young[maphash.String(r.seed, text)] = s
}

// forget ends the memory of a text that was accepted.
func (r *repeats) forget(text string) {
	if len(r.young)+len(r.older) == 0 {
		return
	}
	h := maphash.String(r.seed, text)
	delete(r.young, h)
	delete(r.older, h)
}

package sharded

// Rendezvous hashing: a key gives each shard a score, and the highest scores win. A shard that is added
// changes no other's score, so a key moves only if the new one wins it. All producers must agree, so the
// functions must never change.

// hash returns the FNV-1a hash of a text, mixed.
func hash(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return mix(h)
}

// mix spreads every bit over all of them; it is the finalizer of MurmurHash3, a permutation.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// winners moves the n shards with the highest scores for a key to the front, the first one foremost, and
// returns them. There are n shards at least.
func winners(shards []*shard, key string, n int) []*shard {
	h := hash(key)
	for i := range n {
		best, score := i, mix(h^shards[i].hash)
		for j := i + 1; j < len(shards); j++ {
			if s := mix(h ^ shards[j].hash); s > score {
				best, score = j, s
			}
		}
		shards[i], shards[best] = shards[best], shards[i]
	}
	return shards[:n]
}

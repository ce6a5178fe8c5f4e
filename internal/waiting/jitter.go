package waiting

// Jitter returns a number in [0, 1) for the key, such as a message id, and an ordinal. Different
// keys give unrelated numbers. It is a pure function, so that a run can be repeated. All jitter of the library comes from here.
func Jitter(key string, ordinal int) float64 {
	// FNV-1a over the key, then the finalizer of SplitMix64, because with FNV alone the last
	// bytes hardly change the high bits.
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h += uint64(ordinal) * 0x9E3779B97F4A7C15
	h = (h ^ h>>30) * 0xBF58476D1CE4E5B9
	h = (h ^ h>>27) * 0x94D049BB133111EB
	h ^= h >> 31
	return float64(h>>11) / (1 << 53)
}

package shipping

import "sync"

// maxKnown is how many manifests a server remembers.
const maxKnown = 64

// manifests caches descriptions of stored manifests, which never change. It is safe for concurrent use.
type manifests struct {
	mu      sync.Mutex
	byBatch map[string]*description // guarded by mu
	oldest  []string                // in the order of their coming; guarded by mu
}

func newManifests() *manifests { return &manifests{byBatch: make(map[string]*description)} }

// get returns nil if the batch is not known.
func (m *manifests) get(batch string) *description {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byBatch[batch]
}

// put remembers a description and returns it.
func (m *manifests) put(batch string, d *description) *description {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byBatch[batch] == nil {
		m.oldest = append(m.oldest, batch)
	}
	m.byBatch[batch] = d
	if len(m.oldest) > maxKnown {
		delete(m.byBatch, m.oldest[0])
		m.oldest = m.oldest[1:]
	}
	return d
}

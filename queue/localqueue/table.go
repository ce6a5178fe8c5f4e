package localqueue

// table is messages by their sequence. Sequences of one queue are given out one
// after the other, so a map of small stretches is enough: it has a fraction of the
// entries that a map of messages would have, which at a million is the
// difference between one miss of the cache and several. The zero value is empty
// and holds nothing.
type table struct {
	blocks    map[uint64]*block
	len       int
	maxBlocks int // blocks at a time since the map was made
}

// blockSize weighs the entries of the map against what a lone survivor keeps.
const blockSize = 32

type block struct {
	messages [blockSize]*message
	len      int
}

func (t *table) get(sequence uint64) *message {
	if b := t.blocks[sequence/blockSize]; b != nil {
		return b.messages[sequence%blockSize]
	}
	return nil
}

// put adds a message that is not there yet.
func (t *table) put(m *message) {
	if t.blocks == nil { // an idle queue among ten thousand costs next to nothing
		t.blocks = make(map[uint64]*block)
	}
	b := t.blocks[m.sequence/blockSize]
	if b == nil {
		b = &block{}
		t.blocks[m.sequence/blockSize] = b
		t.maxBlocks = max(t.maxBlocks, len(t.blocks))
	}
	b.messages[m.sequence%blockSize] = m
	b.len++
	t.len++
}

// remove takes away a message that is there. A map never shrinks by itself, so
// one that was large is given back when it is empty.
func (t *table) remove(sequence uint64) {
	b := t.blocks[sequence/blockSize]
	b.messages[sequence%blockSize] = nil
	b.len--
	t.len--
	if b.len == 0 {
		delete(t.blocks, sequence/blockSize)
	}
	if t.len == 0 && t.maxBlocks > shrinkAbove/blockSize {
		*t = table{}
	}
}

package localqueue

// table holds messages by sequence. Sequences of one queue are consecutive, so it is a map
// of small blocks: it has a fraction of the entries of a map of messages, which at a
// million messages saves several cache misses for each lookup. The zero value is empty and
// allocates nothing.
type table struct {
	blocks    map[uint64]*block
	len       int
	maxBlocks int // the most blocks since the map was made
}

// blockSize balances the entries of the map against the memory that a single remaining
// message keeps.
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

// put adds a message that is not in the table.
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

// remove removes a message that is in the table. A map never shrinks by itself, so a large
// one is released when it is empty.
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

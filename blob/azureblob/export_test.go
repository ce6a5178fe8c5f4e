package azureblob

// SetMaxBlocks lowers the number of blocks that a blob may have, and returns it.
func (s *Store) SetMaxBlocks(n int) (before int) {
	before, s.maxBlocks = s.maxBlocks, n
	return before
}

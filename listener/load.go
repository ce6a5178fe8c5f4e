package listener

import "github.com/millrace/millrace/scaling"

// load returns what the listener knows of its load, given a depth that was read.
func (s *session) load(depth int64) scaling.Load {
	running, settling := s.dispatcher.Running()
	active, _, _ := s.pool.counts()
	return Load{Depth: depth, Loops: active, Running: running, Settling: settling, BatchSize: s.options.BatchSize}
}

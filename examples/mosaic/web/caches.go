package web

import (
	"sync"

	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// Bytes of the caches.
const (
	shrunkBytes  = 192 << 20
	squareBytes  = 64 << 20
	layoutsBytes = 128 << 20
)

type shrunkKey struct {
	library string
	size    int // 0 is that of the library itself
}

// shrunkCache keeps libraries with tiles of the sizes that are drawn.
type shrunkCache struct {
	*cache[shrunkKey, *tiles.Library]
	turn sync.Mutex // held while one is read or shrunk, so that each is made once
}

func newShrunkCache() *shrunkCache {
	return &shrunkCache{cache: newCache[shrunkKey, *tiles.Library](shrunkBytes)}
}

type squareKey struct {
	job         string
	level, x, y int // level -1 is a slice
}

type squareCache = cache[squareKey, []byte]

func newSquareCache() *squareCache { return newCache[squareKey, []byte](squareBytes) }

// forget drops what the caches have of a job.
func (s *Server) forget(id string) {
	s.squares.drop(func(k squareKey) bool { return k.job == id })
	s.layouts.drop(func(k string) bool { return k == id })
}

func newLayoutCache() *cache[string, *layout.Layout] {
	return newCache[string, *layout.Layout](layoutsBytes)
}

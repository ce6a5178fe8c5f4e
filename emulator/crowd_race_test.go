//go:build race

package emulator

// crowdSize is fewer than without the race detector, which follows 8,128 goroutines
// at most.
const crowdSize = 4_000

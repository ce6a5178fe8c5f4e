//go:build race

package emulator

// idleClientsCount is fewer than without the race detector, which follows 8,128 goroutines
// at most.
const idleClientsCount = 4_000

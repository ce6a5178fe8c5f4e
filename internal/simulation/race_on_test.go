//go:build race

package simulation

// The race detector makes a seed ten times as slow, and finds in few what it would
// find in many.
const (
	defaultSeeds   = 100
	defaultReplays = 50
)

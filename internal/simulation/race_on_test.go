//go:build race

package simulation

// With the race detector a seed takes ten times as long, and a few seeds find the same races.
const (
	defaultSeeds   = 100
	defaultReplays = 40
)

//go:build !race

package simulation

const (
	defaultSeeds   = 300
	defaultReplays = 80
)

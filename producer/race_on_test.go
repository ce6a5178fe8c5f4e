//go:build race

package producer_test

// raceEnabled is whether the race detector, which makes everything slower, is on.
const raceEnabled = true

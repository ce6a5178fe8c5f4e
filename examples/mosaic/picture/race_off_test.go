//go:build !race

package picture

// raceEnabled is whether the race detector, which multiplies memory, is on.
const raceEnabled = false

//go:build !race

package emulator

const crowdSize = 10_000

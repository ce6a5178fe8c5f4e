//go:build !race

package emulator

const idleClientsCount = 10_000

package picture

import (
	"os"
	"runtime/debug"
)

const (
	// MaxPixels is the largest picture that is read: 50 megapixels.
	MaxPixels = 50_000_000

	// MaxDecodeBytes is the maximum memory for decoding one picture. With the runtime, the tiles and a
	// few slices in addition, the process stays below 1 GiB.
	MaxDecodeBytes = 700_000_000

	// memoryLimit leaves room under 1 GiB for what the Go runtime does not
	// count: the program text and the memory of the operating system.
	memoryLimit = 850 << 20

	// wasteful is how much garbage of a decoder triggers a collection.
	wasteful = 64 << 20
)

// LimitMemory tells the garbage collector to work harder once the process
// nears 850 MiB. A program calls it first thing in main. The setting is skipped
// if the environment variable GOMEMLIMIT already chose a limit.
//
// It is needed because by default the collector lets the heap grow to twice
// what was live at the last collection: a 400 MB picture alone would allow
// 400 MB of garbage beside it. The limit is soft: it costs time, but no
// allocation fails.
func LimitMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}

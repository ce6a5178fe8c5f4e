//go:build !linux

package processes

import "os"

// reclaim gives back the room of the file. What was written since it was read up to the offset is
// lost. It returns the offset at which reading goes on.
func reclaim(f *os.File, offset int64) int64 {
	if f.Truncate(0) != nil {
		return offset
	}
	return 0
}

// withoutLock is what it means that an instance does not hold its lock.
const withoutLock = "the next agent takes it for ended and starts another one"

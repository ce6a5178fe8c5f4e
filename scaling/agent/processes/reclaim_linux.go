package processes

import (
	"os"
	"syscall"
)

// reclaim gives back the room of what comes before the offset, and loses nothing that comes after
// it. It returns the offset of the same place afterwards.
func reclaim(f *os.File, offset int64) int64 {
	// It keeps the size and punches a hole.
	if syscall.Fallocate(int(f.Fd()), 0x01|0x02, 0, offset) == nil || f.Truncate(0) != nil {
		return offset
	}
	return 0
}

// withoutLock is what it means that an instance does not hold its lock.
const withoutLock = "the agent knows its process by the time of its start"

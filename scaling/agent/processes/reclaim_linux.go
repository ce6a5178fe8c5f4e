package processes

import (
	"os"
	"syscall"
)

// punch gives back the room of what comes before the offset. It keeps the size.
func punch(f *os.File, offset int64) bool {
	return syscall.Fallocate(int(f.Fd()), 0x01|0x02, 0, offset) == nil
}

// withoutLock is what it means that an instance does not hold its lock.
const withoutLock = "the agent knows its process by the time of its start"

package filequeue

import (
	"os"
	"syscall"
)

// flush waits until the written data is on disk. It leaves out the modification time, which
// would take a commit of the file system's own journal.
func flush(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

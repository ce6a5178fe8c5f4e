package filequeue

import (
	"os"
	"syscall"
)

// flush waits until what was written has reached the disk. When the file was written
// was is no part of that: to save it would take a commit of the file system's own.
func flush(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}

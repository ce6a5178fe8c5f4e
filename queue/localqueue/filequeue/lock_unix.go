//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filequeue

import (
	"errors"
	"os"
	"syscall"
)

// lock locks the file for this process, or fails with [ErrLocked] at once. The kernel
// releases the lock when the process ends, however it ends.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// unlock releases the file while this process still has it mapped into memory.
func unlock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

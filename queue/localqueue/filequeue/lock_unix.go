//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filequeue

import (
	"errors"
	"os"
	"syscall"
)

// lock takes the file for this process alone, or fails with [ErrLocked] at once.
// The kernel gives it back when the process ends, however it does.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// unlock gives the file back although this process still has it, mapped into memory.
func unlock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filetable

import (
	"errors"
	"os"
	"syscall"
)

// lock locks the file for this process, or fails with [ErrLocked] at once. bbolt locks the same open file again,
// which is no conflict. The kernel releases the lock when the process ends, however it ends.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// unlock releases the file while this process still has it mapped into memory.
func unlock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

// linked reports whether an open file still has a name: false once it was deleted.
func linked(f *os.File) bool {
	info, err := f.Stat()
	if err != nil {
		return true
	}
	stat, is := info.Sys().(*syscall.Stat_t)
	return !is || stat.Nlink > 0
}

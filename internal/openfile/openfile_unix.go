//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package openfile

import (
	"errors"
	"os"
	"syscall"
)

// TryLock locks a file for this open file, and returns false if another one has it locked, of this process or another.
// Locking the same open file again is no conflict, so bbolt can lock it too. The kernel releases the lock when the
// process ends, however it ends.
//
// On systems without flock, such as Windows, it does nothing: there, bbolt's own lock is the only one.
func TryLock(f *os.File) (locked bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// Unlock releases a file while this process still has it mapped into memory.
func Unlock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

// Linked reports whether the file or directory of a Stat still has a name: false once it was deleted. Where there is no
// way to tell, or open files cannot be deleted, it is true.
func Linked(info os.FileInfo) bool {
	stat, is := info.Sys().(*syscall.Stat_t)
	return !is || stat.Nlink > 0
}

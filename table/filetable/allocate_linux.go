package filetable

import (
	"errors"
	"os"
	"syscall"
)

// allocate has the file system allocate a part of a file.
func allocate(f *os.File, from, to int64) error {
	for {
		err := syscall.Fallocate(int(f.Fd()), 0, from, to-from)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL):
			return fill(f, from, to)
		default:
			return os.NewSyscallError("fallocate", err)
		}
	}
}

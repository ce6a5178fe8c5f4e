package filetable

import (
	"errors"
	"os"
	"syscall"
)

// allocate has the file system allocate a part of a file, and returns up to where it has. What is behind its end is
// written: that costs once, but space that was only reserved costs the file system's journal a commit each time that a
// part of it is written first.
func allocate(f *os.File, from, to int64) (allocated int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return from, err
	}
	if end := min(info.Size(), to); from < end { // an earlier process has written it, in most cases
		if from, err = reserveSpace(f, from, end); err != nil {
			return from, err
		}
	}
	return fill(f, from, to)
}

func reserveSpace(f *os.File, from, to int64) (reserved int64, err error) {
	for {
		err := syscall.Fallocate(int(f.Fd()), 0, from, to-from)
		switch {
		case err == nil:
			return to, nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL):
			return fill(f, from, to)
		default:
			return from, os.NewSyscallError("fallocate", err)
		}
	}
}

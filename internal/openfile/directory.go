package openfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"
)

// MakeDirectory creates a directory and its missing parents with the given mode, and waits until
// all their names are on disk, with [SyncDirectory]. An existing directory is left as it is. An error
// names a symbolic link that leads nowhere.
func MakeDirectory(open func(name string) (*os.File, error), path string, mode fs.FileMode) error {
	var missing []string
	for p := trim(path); p != "" && !exists(p); p = parent(p) {
		missing = append(missing, p)
	}
	if err := os.MkdirAll(path, mode); err != nil {
		for p := trim(path); p != ""; p = parent(p) {
			if target, is := linkToNowhere(p); is {
				return nowhereError(p, target)
			}
		}
		return err
	}
	for _, p := range missing {
		if err := SyncDirectory(open, p+string(os.PathSeparator)+".."); err != nil {
			return fmt.Errorf("make the name of the directory %s durable: %w", p, err)
		}
	}
	return nil
}

// parent returns the path before the last element. Unlike filepath.Dir, it resolves no "..",
// which may follow a symbolic link.
func parent(path string) string {
	i := len(path)
	for i > 0 && !os.IsPathSeparator(path[i-1]) {
		i--
	}
	return trim(path[:i])
}

func trim(path string) string {
	return strings.TrimRightFunc(path, func(r rune) bool { return r < 128 && os.IsPathSeparator(uint8(r)) })
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// DescribeLink returns another error in place of err if the path is a symbolic link to a missing
// place: the system's may say that the file exists. Other errors, and nil, are returned unchanged.
func DescribeLink(path string, err error) error {
	if err == nil {
		return nil
	}
	if target, is := linkToNowhere(path); is {
		return nowhereError(path, target)
	}
	return err
}

// linkToNowhere reports whether a path is a symbolic link to a missing place, or to itself.
func linkToNowhere(path string) (target string, is bool) {
	target, err := os.Readlink(path)
	if err != nil {
		return "", false
	}
	_, err = os.Stat(path)
	return target, errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP)
}

func nowhereError(path, target string) error {
	return fmt.Errorf("%s is a symbolic link to %s, which does not exist; mount its volume, create it, or remove the link",
		path, target)
}

// SyncDirectory opens a directory and waits until the names in it are on disk. Windows has no such
// call and does not need it. On a file system without it, and for a directory that this process may
// not read, SyncDirectory does nothing.
func SyncDirectory(open func(name string) (*os.File, error), name string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := open(name)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// OutOfSpace reports whether err means that the disk, or the user's quota, is full. A disk that
// fails is not full.
func OutOfSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

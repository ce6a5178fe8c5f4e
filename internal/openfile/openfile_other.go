//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package openfile

import "os"

// TryLock does nothing here: bbolt locks its file on every system.
func TryLock(*os.File) (locked bool, err error) { return true, nil }

// Unlock does nothing here.
func Unlock(*os.File) error { return nil }

// Linked is always true here.
func Linked(os.FileInfo) bool { return true }

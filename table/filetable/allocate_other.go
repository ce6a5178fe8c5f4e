//go:build !linux

package filetable

import "os"

// allocate has the file system allocate a part of a file.
func allocate(f *os.File, from, to int64) error { return fill(f, from, to) }

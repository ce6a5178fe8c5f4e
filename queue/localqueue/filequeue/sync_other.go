//go:build !linux

package filequeue

import "os"

// flush waits until what was written has reached the disk.
func flush(f *os.File) error { return f.Sync() }

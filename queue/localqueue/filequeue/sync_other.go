//go:build !linux

package filequeue

import (
	"os"
)

// flush waits until the written data is on disk.
func flush(f *os.File) error { return f.Sync() }

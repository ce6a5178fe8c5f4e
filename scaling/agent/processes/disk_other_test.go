//go:build unix && !linux

package processes

import "io/fs"

// onDisk is how much room a file takes.
func onDisk(info fs.FileInfo) int64 { return info.Size() }

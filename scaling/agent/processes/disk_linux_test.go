package processes

import (
	"io/fs"
	"syscall"
)

// onDisk is how much room a file takes.
func onDisk(info fs.FileInfo) int64 { return info.Sys().(*syscall.Stat_t).Blocks * 512 }

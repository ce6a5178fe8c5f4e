//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filequeue

import (
	"os"
	"syscall"
)

// linked reports whether a file or directory still has a name: false once it was deleted.
func linked(info os.FileInfo) bool {
	stat, is := info.Sys().(*syscall.Stat_t)
	return !is || stat.Nlink > 0
}

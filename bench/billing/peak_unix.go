//go:build unix

package main

import (
	"os"
	"runtime"
	"syscall"
)

// peak returns the most memory in bytes that a process had which has ended.
func peak(s *os.ProcessState) int64 {
	usage, ok := s.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" { // all others count kilobytes
		return usage.Maxrss
	}
	return usage.Maxrss * 1024
}

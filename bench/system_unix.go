//go:build unix

package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// processorTime returns the user and system time that this process has used.
func processorTime() (time.Duration, error) {
	var u unix.Rusage
	err := unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// now reads CLOCK_MONOTONIC, which all processes of a machine share. Go's monotonic readings cannot be passed
// to another process.
func now() instant {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // it cannot: the clock exists
	}
	return instant(t.Nano())
}

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

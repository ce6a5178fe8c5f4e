//go:build unix

// Package processor measures the processor time of this process.
package processor

import (
	"syscall"
	"time"
)

// Time returns the user and system time that this process has used.
func Time() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

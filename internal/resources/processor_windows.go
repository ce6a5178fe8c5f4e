package resources

import (
	"syscall"
	"time"
)

func processorTime() (time.Duration, bool) {
	process, err := syscall.GetCurrentProcess()
	if err != nil {
		return 0, false
	}
	var began, ended, kernel, user syscall.Filetime
	if err := syscall.GetProcessTimes(process, &began, &ended, &kernel, &user); err != nil {
		return 0, false
	}
	// Filetime.Nanoseconds counts from 1970, these do not.
	ticks := func(f syscall.Filetime) int64 { return int64(f.HighDateTime)<<32 | int64(f.LowDateTime) }
	return time.Duration(ticks(kernel)+ticks(user)) * 100, true
}

package main

import (
	"syscall"
	"unsafe"
)

// now returns the time since the start of the system, by CLOCK_MONOTONIC, which all processes of a machine
// share. Go's monotonic readings cannot be passed to another process.
func now() instant {
	const monotonic = 1
	var t syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		panic(errno) // it cannot: the clock exists and t is ours
	}
	return instant(t.Nano())
}

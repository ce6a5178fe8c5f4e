//go:build unix

package layout

import (
	"syscall"
	"time"
)

// cpu is the processor time of the process, which does not depend on what else the machine does.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

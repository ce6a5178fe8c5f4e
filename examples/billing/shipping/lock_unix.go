//go:build unix && !solaris && !illumos && !aix

package shipping

import (
	"os"
	"syscall"
)

// lock opens and locks a file that stays: the kernel releases the lock when the process ends, however it ends.
func lock(folder *os.Root, name string) (*os.File, error) {
	f, err := folder.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close() // the other error says more
		if err == syscall.EWOULDBLOCK {
			return nil, errInUse
		}
		return nil, err
	}
	return f, nil
}

//go:build !unix || solaris || illumos || aix

package shipping

import (
	"errors"
	"io/fs"
	"os"
)

// lock opens a file that no other process has open. Windows does not remove a file that is open.
func lock(folder *os.Root, name string) (*os.File, error) {
	if err := folder.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errInUse
	}
	return folder.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

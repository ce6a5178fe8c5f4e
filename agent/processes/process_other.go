//go:build !windows && (!unix || solaris || illumos || aix)

package processes

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// errLocked is the error of lockFile for a file that somebody else has locked.
var errLocked = errors.New("locked")

var errUnsupported = fmt.Errorf("processes cannot be supervised on %s", runtime.GOOS)

func lockFile(*os.Root, string) (*os.File, error) { return nil, errUnsupported }

type process struct{ pid int }

func begin(*os.Root, string, []string, []string, *os.File) (*process, error) {
	return nil, errUnsupported
}

func find(*os.Root, string) (*process, error) { return nil, errUnsupported }

func (*process) close()                         {}
func (*process) known() bool                    { return false }
func (*process) ended() (done bool, how string) { return true, "" }
func (*process) tell() error                    { return errUnsupported }
func (*process) kill() error                    { return errUnsupported }

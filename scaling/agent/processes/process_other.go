//go:build !windows && (!unix || solaris || illumos || aix)

package processes

import (
	"fmt"
	"os"
	"runtime"
)

var errUnsupported = fmt.Errorf("processes cannot be supervised on %s", runtime.GOOS)

type process struct{ pid int }

func begin(*os.Root, string, *os.File, []string, []string, *os.File) (*process, error) {
	return nil, errUnsupported
}

func find(*os.Root, string) (*process, error)   { return nil, errUnsupported }
func (*process) record(*os.Root, string) error  { return errUnsupported }
func (*process) close()                         {}
func (*process) held() bool                     { return false }
func (*process) ended() (done bool, how string) { return true, "" }
func (*process) tell() error                    { return errUnsupported }
func (*process) kill() error                    { return errUnsupported }

//go:build unix

package azuritetest

import (
	"os"
	"os/exec"
	"syscall"
)

// group is the process group of Azurite: Node, and npx around it.
type group struct {
	cmd      *exec.Cmd
	lifeline *os.File // closing it lets the watchdog end the group
}

// watchdogScript runs the command in place of the shell. A watchdog beside it ends the whole
// group and removes its directory when the other end of descriptor 3 is closed, even by the death
// of the test binary.
const watchdogScript = `{ read -r _; rm -rf -- "$0"; kill -9 0; } <&3 >/dev/null 2>&1 & exec 3<&-; exec "$@"`

func startGroup(command []string, dir string, output *os.File) (*group, error) {
	leashed, leash, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = leashed.Close() }() // the child has its own
	cmd := exec.Command("/bin/sh", append([]string{"-c", watchdogScript, dir}, command...)...)
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = output, output
	cmd.ExtraFiles = []*os.File{leashed}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		_ = leash.Close()
		return nil, err
	}
	return &group{cmd, leash}, nil
}

func (g *group) kill() {
	// Errors mean that the process has already ended.
	_ = syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL)
	_ = g.cmd.Wait()
	_ = g.lifeline.Close()
}

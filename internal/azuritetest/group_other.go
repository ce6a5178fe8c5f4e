//go:build !unix

package azuritetest

import (
	"os"
	"os/exec"
)

// group is the process group of Azurite: Node, and npx around it.
type group struct{ cmd *exec.Cmd }

func startGroup(command []string, dir string, output *os.File) (*group, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = environment()
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &group{cmd}, nil
}

func (g *group) kill() {
	_ = g.cmd.Process.Kill() // it may have ended by itself
	_ = g.cmd.Wait()         // says that it was killed
}

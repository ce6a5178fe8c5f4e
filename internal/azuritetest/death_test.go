//go:build unix

package azuritetest

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const dying = "AZURITETEST_DYING"

// TestDying starts Azurite and waits to be killed. It runs only in the child process of
// TestKilledBinaryLeavesNothingBehind.
func TestDying(t *testing.T) {
	if os.Getenv(dying) == "" {
		t.Skip("run by TestKilledBinaryLeavesNothingBehind")
	}
	ConnectionString(t)
	fmt.Println("started", queueService.server.url, queueService.server.dir)
	select {} // until killed
}

func TestKilledBinaryLeavesNothingBehind(t *testing.T) {
	ConnectionString(t) // skips the test without Azurite
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDying$")
	cmd.Env = append(os.Environ(), dying+"=1")
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var url, dir string
	for lines := bufio.NewScanner(output); lines.Scan(); {
		if n, _ := fmt.Sscanf(lines.Text(), "started %s %s", &url, &dir); n == 2 {
			break
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	if url == "" {
		t.Fatal("output of the child: got no \"started\" line, want one")
	}
	Until(t, "Azurite no longer listens", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	Until(t, "its directory is gone", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
}

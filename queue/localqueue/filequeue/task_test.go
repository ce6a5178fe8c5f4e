package filequeue

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// childTask is the variable that makes this program do one of the tasks below instead of
// its tests, and where: for what needs a process of its own.
const childTask = "FILEQUEUE_TEST_TASK"

var tasks = map[string]func(dir string) error{"open": sayWhetherItOpens}

func taskIfAsked() {
	task := os.Getenv(childTask)
	if task == "" {
		return
	}
	name, dir, _ := strings.Cut(task, " ")
	if err := tasks[name](dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startTask starts a task, whose lines are then read.
func startTask(t *testing.T, task, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", childTask+"="+task+" "+dir)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewScanner(out)
}

// sayWhetherItOpens says what came of opening a directory.
func sayWhetherItOpens(dir string) error {
	s, err := Open(dir)
	switch {
	case errors.Is(err, ErrLocked):
		fmt.Println("locked")
	case err != nil:
		return err
	default:
		fmt.Println("opened")
		return s.Close()
	}
	return nil
}

package filequeue

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// The variables that make the test binary run a task instead of tests, for tests that need a child
// process.
const (
	taskName      = "FILEQUEUE_TEST_TASK"
	taskDirectory = "FILEQUEUE_TEST_DIRECTORY" // where
	taskArgument  = "FILEQUEUE_TEST_ARGUMENT"  // another argument
)

var tasks = map[string]func(dir, argument string) error{"open": printWhetherItOpens}

func taskIfAsked() {
	task := os.Getenv(taskName)
	if task == "" {
		return
	}
	if err := tasks[task](os.Getenv(taskDirectory), os.Getenv(taskArgument)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startTask starts a task and returns its output by lines.
func startTask(t *testing.T, task, dir, argument string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	c := exec.CommandContext(t.Context(), os.Args[0])
	c.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0", taskName+"="+task, taskDirectory+"="+dir, taskArgument+"="+argument)
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

// runTask runs a task to its end and returns the last line of its output.
func runTask(t *testing.T, task, dir string) (last string) {
	t.Helper()
	process, lines := startTask(t, task, dir, "")
	for lines.Scan() {
		last = lines.Text()
		t.Log(last)
	}
	if err := process.Wait(); err != nil {
		t.Errorf("task %s: %v", task, err)
	}
	return last
}

// printWhetherItOpens opens a directory and prints the outcome.
func printWhetherItOpens(dir, _ string) error {
	s, err := openStore(dir)
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

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// program builds millrace once and returns its path. Call removeProgram at the end.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "millrace-bench")
	if err != nil {
		return "", err
	}
	programDir = dir
	path := filepath.Join(dir, "millrace")
	build := exec.Command("go", "build", "-o", path, "github.com/millrace/millrace/cmd/millrace")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build millrace: %w: %s", err, output)
	}
	return path, nil
})

var programDir string // set by program

func removeProgram() {
	if programDir != "" {
		_ = os.RemoveAll(programDir) // it is a temporary directory
	}
}

// startMillrace starts "millrace serve" with its data in memory or on disk, in a temporary directory.
// TMPDIR selects another disk.
func startMillrace(onDisk bool) (*server, error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	args := []string{"serve", "-addr", "127.0.0.1:0"}
	removing := func() error { return nil }
	if onDisk {
		dir, err := os.MkdirTemp("", "millrace-bench")
		if err != nil {
			return nil, err
		}
		removing = func() error { return os.RemoveAll(dir) }
		args = append(args, "-data", dir)
	}
	c := exec.Command(path, args...)
	end := func() error { return c.Process.Signal(syscall.SIGTERM) }
	s, err := launch(c, connectionString, end)
	if err != nil {
		return nil, errors.Join(err, removing())
	}
	stop := s.stop
	s.stop = func() error { return errors.Join(stop(), removing()) }
	return s, nil
}

// connectionString returns the connection string in a line of output; "" for other lines.
func connectionString(line string) string {
	rest, found := strings.CutPrefix(strings.TrimSpace(line), "connection string")
	if !found {
		return ""
	}
	return strings.TrimSpace(rest)
}

// processorOf returns the processor time that the threads of a process have used. Linux counts it in
// nanoseconds.
func processorOf(pid int) (used time.Duration, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		first, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, err
		}
		used += time.Duration(n)
	}
	if used == 0 {
		return 0, errors.New("this system does not count processor time by process")
	}
	return used, nil
}

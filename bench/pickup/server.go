package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue/localqueue"
)

// serverVariable, if set, makes this program the emulator: it prints its connection string and runs until
// its standard input ends.
const serverVariable = "MILLRACE_BENCH_PICKUP"

func serve(in io.Reader, out, failures io.Writer) int {
	e, err := emulator.New(localqueue.New(nil), nil).Start("")
	if err != nil {
		_, _ = fmt.Fprintln(failures, "pickup: server:", err)
		return 1
	}
	defer func() { _ = e.Close() }() // the process ends anyway
	_, _ = fmt.Fprintln(out, e.ConnectionString())
	_, _ = io.Copy(io.Discard, in)
	return 0
}

// server is the emulator in a process of its own.
type server struct {
	process    *exec.Cmd
	in         io.WriteCloser
	connection string
}

func startServer() (*server, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &server{process: exec.Command(program)}
	s.process.Env = append(os.Environ(), serverVariable+"=1")
	s.process.Stderr = os.Stderr
	if s.in, err = s.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the server has ended: %w", err), s.stop())
	}
	s.connection = strings.TrimSpace(line)
	return s, nil
}

// stop ends the process and waits for it.
func (s *server) stop() error { return errors.Join(s.in.Close(), s.process.Wait()) }

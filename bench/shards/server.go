package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/millrace/millrace/bench/internal/processor"
	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue/localqueue"
)

// serveVariable, if set, makes this program the server. Its value is the limit of a queue.
const serveVariable = "MILLRACE_BENCH_SHARDS"

// answer is what the server writes: first where it is, and then for each line that it reads, what it has
// used and refused so far.
type answer struct {
	Location  string        // a connection string
	Processor time.Duration // user and system
	Requests  int64         // all of them
	Limited   int64         // those refused because of the limit
	Error     string
}

// serveIfAsked makes this process the server, and does not return, if it was started as one.
func serveIfAsked() {
	limit, asked := os.LookupEnv(serveVariable)
	if !asked {
		return
	}
	if err := serve(limit, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "shards: server:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve runs the server until in ends.
func serve(limit string, in io.Reader, out io.Writer) error {
	messages, err := strconv.Atoi(limit)
	if err != nil {
		return err
	}
	s := emulator.New(localqueue.New(nil), &emulator.Options{Limits: emulator.Limits{Messages: messages}})
	e, err := s.Start("")
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }() // the process ends anyway
	answers := json.NewEncoder(out)
	if err := answers.Encode(answer{Location: e.ConnectionString()}); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		counts := s.Counts()
		a := answer{Requests: counts.Requests(), Limited: counts.Limited}
		if a.Processor, err = processor.Time(); err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
	return nil
}

// server is the emulator in another process.
type server struct {
	location string

	process *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

func startServer(limit int) (*server, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &server{process: exec.Command(program)}
	s.process.Env = append(os.Environ(), serveVariable+"="+strconv.Itoa(limit))
	s.process.Stderr = os.Stderr
	if s.in, err = s.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = json.NewDecoder(out)
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	var a answer
	if err := s.out.Decode(&a); err != nil {
		return nil, errors.Join(fmt.Errorf("the server did not start: %w", err), s.stop())
	}
	s.location = a.Location
	return s, nil
}

// look asks the server what it has used and refused.
func (s *server) look() (a answer, err error) {
	if _, err := io.WriteString(s.in, "look\n"); err != nil {
		return a, err
	}
	if err := s.out.Decode(&a); err != nil {
		return a, fmt.Errorf("the server has ended: %w", err)
	}
	if a.Error != "" {
		return a, errors.New(a.Error)
	}
	return a, nil
}

// stop ends the process and waits for it.
func (s *server) stop() error { return errors.Join(s.in.Close(), s.process.Wait()) }

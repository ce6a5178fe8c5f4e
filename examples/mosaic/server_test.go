package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/localqueue/filequeue"
)

// The environment that makes this test binary a durable queue server: its folder and its address.
const (
	asServer      = "MOSAIC_TEST_SERVER"
	serverAddress = "MOSAIC_TEST_ADDRESS"
)

// serveQueues serves the queues in a folder until the process is killed. It prints its address and its
// connection string.
func serveQueues(dir, address string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	engine, err := filequeue.Open(dir, nil)
	fail(err)
	e, err := must(emulator.New(engine.Engine, nil)).Start(address)
	fail(err)
	fmt.Printf("%s %s\n", e.Addr(), e.ConnectionString())
	<-e.Done()
}

// server is a durable queue server in a process of its own, so that it can be killed.
type server struct {
	t        *testing.T
	dir      string
	address  string
	location string
	cmd      *exec.Cmd
}

// newServer starts a server with the queues of the mosaic, whose messages are hidden for the shortest time
// so that the work of killed processes is soon taken up again.
func newServer(t *testing.T) *server {
	s := &server{t: t, dir: t.TempDir()}
	s.start()
	createQueues(t, s.location)
	return s
}

// createQueues creates the queues of the mosaic, whose messages are hidden for the shortest time.
func createQueues(t *testing.T, location string) {
	t.Helper()
	for _, name := range []string{"imagerequest", "slicerequest", "sliceresponse", "imageresponse"} {
		q, err := azurequeue.Open(location, name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Create(t.Context(), map[string]string{"defaulttimeout": "5"}); err != nil {
			t.Fatal(err)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// start starts the server, at the address that it had before.
func (s *server) start() {
	s.t.Helper()
	s.cmd = exec.CommandContext(s.t.Context(), os.Args[0])
	s.cmd.Env = append(os.Environ(), asServer+"="+s.dir, serverAddress+"="+s.address)
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.t.Fatal(err)
	}
	s.address, s.location, _ = strings.Cut(strings.TrimSpace(line), " ")
	cmd := s.cmd
	s.t.Cleanup(func() { _ = cmd.Wait() }) // the end of the test's context kills it
}

// kill kills the server.
func (s *server) kill() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Wait() // it was killed
}

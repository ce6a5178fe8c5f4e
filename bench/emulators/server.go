package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/internal/queuexml"
)

// server is a server in a separate process.
type server struct {
	location  string                        // a connection string
	processor func() (time.Duration, error) // used so far; nil if unknown
	stop      func() error
}

// contender is a kind of server.
type contender struct {
	name  string
	start func() (*server, error)
}

func (c contender) String() string { return c.name }

// The others are compared with the first.
var contenders = []contender{
	{"azurite", startAzurite},
	{"memory", func() (*server, error) { return startMillrace(false) }},
	{"disk", func() (*server, error) { return startMillrace(true) }},
	{"bare", startBare},
}

func startAzurite() (*server, error) {
	location, stop, err := azuritetest.Start()
	if err != nil {
		return nil, err
	}
	return &server{location: location, stop: func() error { stop(); return nil }}, nil
}

// bareVariable, if set, makes this program run the bare server.
const bareVariable = "MILLRACE_BENCH_BARE"

// startBare starts this program as the bare server, until its standard input ends.
func startBare() (*server, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(path)
	c.Env = append(os.Environ(), bareVariable+"=1")
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	return launch(c, func(line string) string { return line }, in.Close)
}

// launch starts a server that prints its location on a line. end asks it to end.
func launch(c *exec.Cmd, locationIn func(line string) string, end func() error) (*server, error) {
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	s := &server{}
	for s.location == "" && lines.Scan() {
		s.location = locationIn(lines.Text())
	}
	s.stop = func() error {
		err := end()
		for lines.Scan() { // until it has ended
		}
		return errors.Join(err, c.Wait())
	}
	if s.location == "" {
		return nil, errors.Join(fmt.Errorf("%s did not print its location", c.Path), s.stop())
	}
	if _, err := processorOf(c.Process.Pid); err == nil {
		s.processor = func() (time.Duration, error) { return processorOf(c.Process.Pid) }
	}
	return s, nil
}

// bareIfAsked runs the bare server, and does not return, if this process was started for it.
func bareIfAsked() {
	if os.Getenv(bareVariable) == "" {
		return
	}
	location, stop, err := listenBare()
	if err == nil {
		fmt.Println(location)
		_, err = io.Copy(io.Discard, os.Stdin)
		err = errors.Join(err, stop())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "emulators: server:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// listenBare starts a server that responds to every GET with the same 32 messages, to a POST with one,
// and to others without a body. It parses nothing but what net/http does.
func listenBare() (string, func() error, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		_ = http.Serve(listener, http.HandlerFunc(respond)) // until the listener is closed, with the process
	}()
	location := fmt.Sprintf("AccountName=%s;AccountKey=%s;QueueEndpoint=http://%s/%s;",
		emulator.DevelopmentAccount, emulator.DevelopmentKey, listener.Addr(), emulator.DevelopmentAccount)
	return location, listener.Close, nil
}

var always = map[string][]byte{
	http.MethodGet:  canned(queuexml.Get, 32),
	http.MethodPost: canned(queuexml.Put, 1),
}

func respond(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // fails only if the client has left
	body, some := always[r.Method]
	switch {
	case !some:
		w.WriteHeader(http.StatusNoContent)
		return
	case r.Method == http.MethodPost:
		w.WriteHeader(http.StatusCreated)
	}
	_, _ = w.Write(body)
}

func canned(part queuexml.Part, n int) []byte {
	all := make([]queuexml.Message, n)
	for i := range all {
		now := time.Now()
		all[i] = queuexml.Message{
			ID: "b2f1ba9c-7a0c-4f61-8d5b-4e1f0d7d2a11", Receipt: strings.Repeat("r", 24), Text: strings.Repeat("x", textSize),
			Inserted: now, Expires: now.Add(time.Hour), NextVisible: now.Add(time.Minute), DequeueCount: 1,
		}
	}
	return queuexml.AppendMessages(nil, part, slices.Values(all))
}

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
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/localqueue/filequeue"
)

// server is a server in a process of its own.
type server struct {
	location  string                        // a connection string
	processor func() (time.Duration, error) // that it has used so far; nil when that is not known
	stop      func() error
}

// contender is a kind of server.
type contender struct {
	name  string
	start func() (*server, error)
}

func (c contender) String() string { return c.name }

// The first is what the others are compared with.
var contenders = []contender{
	{"azurite", startAzurite},
	{"memory", func() (*server, error) { return startOwn("memory") }},
	{"disk", func() (*server, error) { return startOwn("disk") }},
	{"bare", func() (*server, error) { return startOwn("bare") }},
}

func startAzurite() (*server, error) {
	location, stop, err := azuritetest.Start()
	if err != nil {
		return nil, err
	}
	return &server{location: location, stop: func() error { stop(); return nil }}, nil
}

// serveVariable makes a process of this program a server of the kind that is its value.
const serveVariable = "MILLRACE_BENCH_EMULATOR"

// startOwn starts this program as a server. It speaks over standard input and output: it
// says where it is, and for every line what processor time it has used.
func startOwn(kind string) (*server, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(program)
	c.Env = append(os.Environ(), serveVariable+"="+kind)
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return nil, errors.Join(fmt.Errorf("the server %s did not start", kind), c.Wait())
	}
	return &server{
		location: lines.Text(),
		processor: func() (time.Duration, error) {
			if _, err := io.WriteString(in, "\n"); err != nil {
				return 0, err
			}
			if !lines.Scan() {
				return 0, errors.New("the server is gone")
			}
			used, err := strconv.ParseInt(lines.Text(), 10, 64)
			return time.Duration(used), err
		},
		stop: func() error { return errors.Join(in.Close(), c.Wait()) },
	}, nil
}

// serveIfAsked makes this process a server, and does not return, if it was started as one.
func serveIfAsked() {
	kind, asked := os.LookupEnv(serveVariable)
	if !asked {
		return
	}
	if err := serve(kind); err != nil {
		fmt.Fprintln(os.Stderr, "emulators: server:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(kind string) (err error) {
	location, stop, err := listen(kind)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	fmt.Println(location)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		fmt.Println(u.Utime.Nano() + u.Stime.Nano())
	}
	return nil
}

func listen(kind string) (location string, stop func() error, err error) {
	switch kind {
	case "bare":
		return listenBare()
	case "memory":
		return listenWith(localqueue.New(nil), func() error { return nil })
	case "disk":
		return listenOnDisk()
	}
	return "", nil, fmt.Errorf("there is no server %q", kind)
}

// listenOnDisk keeps everything in a directory for temporary files, which TMPDIR moves to
// another disk.
func listenOnDisk() (location string, stop func() error, err error) {
	dir, err := os.MkdirTemp("", "millrace-bench")
	if err != nil {
		return "", nil, err
	}
	removing := func() error { return os.RemoveAll(dir) }
	store, err := filequeue.Open(dir)
	if err != nil {
		return "", nil, errors.Join(err, removing())
	}
	engine, err := localqueue.Open(store, nil)
	if err != nil {
		return "", nil, errors.Join(err, store.Close(), removing())
	}
	return listenWith(engine, func() error { return errors.Join(engine.Close(), removing()) })
}

func listenWith(engine *localqueue.Engine, closing func() error) (string, func() error, error) {
	e, err := emulator.New(engine, nil).Start("")
	if err != nil {
		return "", nil, err
	}
	return e.ConnectionString(), func() error { return errors.Join(e.Close(), closing()) }, nil
}

// listenBare answers everything with the same 32 messages, or nothing, and reads no more
// than net/http does.
func listenBare() (string, func() error, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		_ = http.Serve(listener, http.HandlerFunc(answer)) // until the listener is closed, with the process
	}()
	location := fmt.Sprintf("AccountName=%s;AccountKey=%s;QueueEndpoint=http://%s/%s;",
		emulator.DevelopmentAccount, emulator.DevelopmentKey, listener.Addr(), emulator.DevelopmentAccount)
	return location, listener.Close, nil
}

var always = map[string][]byte{
	http.MethodGet:  canned(queuexml.Get, 32),
	http.MethodPost: canned(queuexml.Put, 1),
}

func answer(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // a client that left is no concern of ours
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

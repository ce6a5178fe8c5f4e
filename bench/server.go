package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// serveVariable, if set, makes this program run the server. Its value is the
// endpoints, separated by commas.
const serveVariable = "MILLRACE_BENCH_SERVE"

// endpoint is an endpoint of the server.
type endpoint struct {
	latency time.Duration
	secure  bool // over TLS
}

func (e endpoint) String() string { return fmt.Sprintf("%v/%v", e.latency, e.secure) }

func parseEndpoint(text string) (e endpoint, err error) {
	latency, secure, _ := strings.Cut(text, "/")
	if e.latency, err = time.ParseDuration(latency); err == nil {
		e.secure, err = strconv.ParseBool(secure)
	}
	return e, err
}

// server is the emulator in a separate process, controlled by lines on its standard input and output.
type server struct {
	process   *exec.Cmd
	in        io.WriteCloser
	out       *bufio.Scanner
	locations map[endpoint]string
	directory string // of the certificate for TLS; removed at the end
}

// startServer starts a server with these endpoints, all for the same queues.
func startServer(endpoints []endpoint) (_ *server, err error) {
	s := &server{locations: make(map[endpoint]string)}
	if s.directory, err = trustedCertificate(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(s.directory))
		}
	}()
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(program)
	for _, e := range endpoints {
		c.Env = append(c.Env, e.String())
	}
	c.Env = append(os.Environ(), serveVariable+"="+strings.Join(c.Env, ","), certificateVariable+"="+s.directory)
	c.Stderr = os.Stderr
	s.process = c
	if s.in, err = c.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewScanner(out)
	if err := c.Start(); err != nil {
		return nil, err
	}
	for _, e := range endpoints {
		if !s.out.Scan() {
			return nil, errors.Join(errors.New("the server did not start"), c.Wait())
		}
		s.locations[e] = s.out.Text()
	}
	return s, nil
}

// stop ends the process and waits for it.
func (s *server) stop() error {
	closed := s.in.Close() // ends the process
	return errors.Join(closed, s.process.Wait(), os.RemoveAll(s.directory))
}

// keepFull creates a queue and keeps at least this number of messages of this size in it.
func (s *server) keepFull(queue string, messages, size int) error {
	return s.tell("full %s %d %d", queue, messages, size)
}

// drop ends keepFull and deletes the queue.
func (s *server) drop(queue string) error { return s.tell("drop %s", queue) }

func (s *server) tell(format string, args ...any) error {
	if _, err := fmt.Fprintf(s.in, format+"\n", args...); err != nil {
		return err
	}
	if !s.out.Scan() {
		return errors.New("the server has ended")
	}
	if answer := s.out.Text(); answer != "ok" {
		return errors.New("server: " + answer)
	}
	return nil
}

// serveIfAsked makes this process the server, and does not return, if it was
// started as one.
func serveIfAsked() {
	endpoints, asked := os.LookupEnv(serveVariable)
	if !asked {
		return
	}
	if err := serve(endpoints); err != nil {
		fmt.Fprintln(os.Stderr, "bench: server:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(endpoints string) error {
	engine := localqueue.New(nil)
	directory := os.Getenv(certificateVariable)
	certificate, err := tls.LoadX509KeyPair(filepath.Join(directory, certificateFile), filepath.Join(directory, keyFile))
	if err != nil {
		return err
	}
	for one := range strings.SplitSeq(endpoints, ",") {
		at, err := parseEndpoint(one)
		if err != nil {
			return err
		}
		e, err := listenAt(emulator.New(engine, &emulator.Options{Delay: at.latency}), at, certificate)
		if err != nil {
			return err
		}
		defer func() { _ = e.Close() }() // the process ends anyway
		fmt.Println(e.ConnectionString())
	}
	f := filler{engine: engine, stops: make(map[string]func())}
	defer f.stopAll()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := f.obey(in.Text()); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println("ok")
	}
	return nil
}

func listenAt(s *emulator.Server, at endpoint, certificate tls.Certificate) (*emulator.Endpoint, error) {
	if at.secure {
		return s.StartTLS("", &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	}
	return s.Start("")
}

// filler keeps queues full.
type filler struct {
	engine *localqueue.Engine
	stops  map[string]func() // by queue
}

func (f *filler) obey(line string) error {
	var name string
	var messages, size int
	if n, _ := fmt.Sscanf(line, "full %s %d %d", &name, &messages, &size); n == 3 {
		return f.keepFull(name, messages, size)
	}
	if n, _ := fmt.Sscanf(line, "drop %s", &name); n == 1 {
		return f.drop(name)
	}
	return fmt.Errorf("unknown command %q", line)
}

func (f *filler) queue(name string) queue.Manager {
	return f.engine.Queue(queue.Name{Account: emulator.DevelopmentAccount, Queue: name})
}

func (f *filler) keepFull(name string, messages, size int) error {
	ctx, cancel := context.WithCancel(context.Background())
	q, text := f.queue(name), strings.Repeat("x", size)
	fill := func() error {
		p, err := q.Properties(ctx)
		for depth := p.Depth; err == nil && depth < int64(messages); depth++ {
			_, err = q.Enqueue(ctx, text, nil)
		}
		return err
	}
	if err := errors.Join(q.Create(ctx, nil), fill()); err != nil {
		cancel()
		return err
	}
	var work sync.WaitGroup
	work.Go(func() {
		for pause := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				pause.Stop()
				return
			case <-pause.C:
				_ = fill() // a failure shows as an empty queue
			}
		}
	})
	f.stops[name] = func() { cancel(); work.Wait() }
	return nil
}

func (f *filler) drop(name string) error {
	stop, ok := f.stops[name]
	if !ok {
		return fmt.Errorf("unknown queue %s", name)
	}
	stop()
	delete(f.stops, name)
	return f.queue(name).Drop(context.Background())
}

func (f *filler) stopAll() {
	for _, stop := range f.stops {
		stop()
	}
}

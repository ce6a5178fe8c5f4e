package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// serveVariable makes a process of this program the server. Its value is the
// latencies.
const serveVariable = "MILLRACE_BENCH_SERVE"

// server is the emulator in a process of its own, spoken to over standard input
// and output: a line each way.
type server struct {
	process   *exec.Cmd
	in        io.WriteCloser
	out       *bufio.Scanner
	locations map[time.Duration]string // by latency
}

// startServer starts one endpoint for every latency, all over the same queues.
func startServer(latencies []time.Duration) (*server, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(program)
	for _, l := range latencies {
		c.Env = append(c.Env, l.String())
	}
	c.Env = append(os.Environ(), serveVariable+"="+strings.Join(c.Env, ","))
	c.Stderr = os.Stderr
	s := &server{process: c, locations: make(map[time.Duration]string)}
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
	for _, l := range latencies {
		if !s.out.Scan() {
			return nil, errors.Join(errors.New("the server did not start"), c.Wait())
		}
		s.locations[l] = s.out.Text()
	}
	return s, nil
}

// stop ends the process and waits for it.
func (s *server) stop() error {
	closed := s.in.Close() // which is how it is told
	return errors.Join(closed, s.process.Wait())
}

// keepFull creates a queue and keeps at least so many messages of that size in it.
func (s *server) keepFull(queue string, messages, size int) error {
	return s.tell("full %s %d %d", queue, messages, size)
}

// drop ends keepFull and takes the queue away.
func (s *server) drop(queue string) error { return s.tell("drop %s", queue) }

func (s *server) tell(format string, args ...any) error {
	if _, err := fmt.Fprintf(s.in, format+"\n", args...); err != nil {
		return err
	}
	if !s.out.Scan() {
		return errors.New("the server is gone")
	}
	if answer := s.out.Text(); answer != "ok" {
		return errors.New("the server says: " + answer)
	}
	return nil
}

// serveIfAsked makes this process the server, and does not return, if it was
// started as one.
func serveIfAsked() {
	latencies, asked := os.LookupEnv(serveVariable)
	if !asked {
		return
	}
	if err := serve(latencies); err != nil {
		fmt.Fprintln(os.Stderr, "bench: server:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(latencies string) error {
	engine := localqueue.New(nil)
	for one := range strings.SplitSeq(latencies, ",") {
		delay, err := time.ParseDuration(one)
		if err != nil {
			return err
		}
		e, err := emulator.New(engine, &emulator.Options{Delay: delay}).Start("")
		if err != nil {
			return err
		}
		defer func() { _ = e.Close() }() // the process ends
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
	return fmt.Errorf("%q is no command", line)
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
				_ = fill() // what fails here shows as a queue that runs empty
			}
		}
	})
	f.stops[name] = func() { cancel(); work.Wait() }
	return nil
}

func (f *filler) drop(name string) error {
	stop, ok := f.stops[name]
	if !ok {
		return fmt.Errorf("there is no %s", name)
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

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue/localqueue"
)

// roleVariable, if set, makes this program the server or a worker. It then reads lines from its standard
// input and responds to each with one, until that ends.
const roleVariable = "MILLRACE_BENCH_LATENCY"

const (
	roleServer = "server"
	roleWorker = "worker"
)

// servers are where the servers are.
type servers struct {
	Queue string // a connection string
	NATS  string // a URL
}

// playRole makes this process the server or a worker, and does not return, if it was started as one.
func playRole() {
	roles := map[string]func(io.Reader, *json.Encoder) error{roleServer: serve, roleWorker: work}
	role, asked := roles[os.Getenv(roleVariable)]
	if !asked {
		return
	}
	if err := role(os.Stdin, json.NewEncoder(os.Stdout)); err != nil {
		fmt.Fprintln(os.Stderr, "latency:", os.Getenv(roleVariable)+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve runs the servers.
func serve(in io.Reader, out *json.Encoder) error {
	e, err := emulator.New(localqueue.New(nil), nil).Start("")
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }() // the process ends anyway
	nats, stop, err := serveNATS()
	if err != nil {
		return err
	}
	defer stop()
	if err := out.Encode(servers{Queue: e.ConnectionString(), NATS: nats}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// request asks a worker for one of two things.
type request struct {
	RoundTrips int           // so many of them
	Pace       time.Duration // between them
	Starts     int           // those of so many jobs
	Within     time.Duration // how long it may take
}

// response has what was asked for, or an error.
type response struct {
	RoundTrips []time.Duration
	Starts     []instant
	Error      string
}

// work runs a worker. The first line is its assignment, the others are requests.
func work(in io.Reader, out *json.Encoder) error {
	lines := json.NewDecoder(in)
	var a assignment
	if err := lines.Decode(&a); err != nil {
		return err
	}
	w, err := startWorker(context.Background(), a)
	if err != nil {
		return err
	}
	err = out.Encode(response{}) // it listens
	for err == nil {
		var asked request
		if err = lines.Decode(&asked); err == nil {
			err = out.Encode(w.respond(asked))
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, w.stop())
}

func (w *worker) respond(asked request) (r response) {
	ctx, cancel := context.WithTimeout(context.Background(), asked.Within)
	defer cancel()
	var err error
	if asked.RoundTrips > 0 {
		r.RoundTrips, err = w.roundTrips(ctx, asked.RoundTrips, asked.Pace)
	} else {
		r.Starts, err = w.starts(ctx, asked.Starts)
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// child is this program in another role.
type child struct {
	process *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

func startChild(role string) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{process: exec.Command(program)}
	c.process.Env = append(os.Environ(), roleVariable+"="+role)
	c.process.Stderr = os.Stderr
	if c.in, err = c.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = json.NewDecoder(bufio.NewReader(out))
	return c, c.process.Start()
}

// ask sends a line and reads the response.
func (c *child) ask(line, answer any) error {
	if err := json.NewEncoder(c.in).Encode(line); err != nil {
		return err
	}
	return c.hear(answer)
}

func (c *child) hear(answer any) error {
	if err := c.out.Decode(answer); err != nil {
		return fmt.Errorf("the process has ended: %w", err)
	}
	return nil
}

// stop ends the process and waits for it.
func (c *child) stop() error { return errors.Join(c.in.Close(), c.process.Wait()) }

// startServers starts the servers in a process of their own.
func startServers() (*child, servers, error) {
	c, err := startChild(roleServer)
	if err != nil {
		return nil, servers{}, err
	}
	var at servers
	if err := c.hear(&at); err != nil {
		return nil, servers{}, errors.Join(err, c.stop())
	}
	return c, at, nil
}

// remote is a worker in another process.
type remote struct{ *child }

func startRemote(a assignment) (*remote, error) {
	c, err := startChild(roleWorker)
	if err != nil {
		return nil, err
	}
	r := &remote{c}
	if err := c.ask(a, new(response)); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return r, nil
}

// roundTrips implements consumer.
func (r *remote) roundTrips(ctx context.Context, n int, pace time.Duration) ([]time.Duration, error) {
	found, err := r.request(ctx, request{RoundTrips: n, Pace: pace})
	return found.RoundTrips, err
}

// starts implements consumer.
func (r *remote) starts(ctx context.Context, n int) ([]instant, error) {
	found, err := r.request(ctx, request{Starts: n})
	return found.Starts, err
}

func (r *remote) request(ctx context.Context, asked request) (found response, err error) {
	asked.Within = time.Hour
	if end, some := ctx.Deadline(); some {
		asked.Within = time.Until(end)
	}
	if err := r.ask(asked, &found); err != nil {
		return found, err
	}
	if found.Error != "" {
		return found, errors.New(found.Error)
	}
	return found, nil
}

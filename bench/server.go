package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	nats "github.com/nats-io/nats-server/v2/server"
)

// serverOptions are the first value for a server: the emulator, with its messages in memory.
type serverOptions struct {
	Endpoints []endpoint // with the same queues; by default one
	Limit     int        // of each queue, messages a second; 0 for none
	NATS      bool       // run a NATS server too
	JetStream string     // its folder for JetStream; empty disables JetStream
	Synced    bool       // JetStream syncs its files before it acknowledges

	Own keyPair // for endpoints with TLS
}

// keyPair is a certificate and its key, in PEM.
type keyPair struct{ Certificate, Key []byte }

type endpoint struct {
	Delay time.Duration // how much longer a request takes
	TLS   bool
}

type serverState struct {
	Locations         []string // connection strings of the endpoints
	NATS              string   // a URL
	Processor         time.Duration
	Requests, Limited int64
}

// serverOrder is a further value for a server. An empty one only asks for the state.
type serverOrder struct {
	Fill           string // create this queue, and keep messages in it
	Messages, Size int    // so many, of so many bytes
	Drop           string // stop that, and delete this queue
}

// server is the emulator in a process of its own.
type server struct {
	*child
	started serverState
}

func startServer(o serverOptions) (s *server, err error) {
	s = &server{}
	if slices.ContainsFunc(o.Endpoints, func(e endpoint) bool { return e.TLS }) {
		if o.Own, err = ownKeyPair(); err != nil {
			return nil, err
		}
	}
	s.child, err = startChild(context.Background(), "server", o, &s.started)
	return s, err
}

// look returns what the server has done so far.
func (s *server) look() (state serverState, err error) {
	err = s.ask(serverOrder{}, &state)
	return state, err
}

func serve(first json.RawMessage) (any, answerer, error) {
	var o serverOptions
	if err := json.Unmarshal(first, &o); err != nil {
		return nil, nil, err
	}
	if o.Endpoints == nil {
		o.Endpoints = make([]endpoint, 1)
	}
	engine, err := localqueue.New(nil)
	if err != nil {
		return nil, nil, err
	}
	var state serverState
	var counting *emulator.Server // benchmarks that count have one endpoint
	for _, at := range o.Endpoints {
		counting, err = emulator.New(engine, &emulator.Options{Delay: at.Delay, Quotas: emulator.Quotas{Messages: o.Limit}})
		if err != nil {
			return nil, nil, err
		}
		var e *emulator.Endpoint
		if at.TLS {
			var own tls.Certificate
			if own, err = tls.X509KeyPair(o.Own.Certificate, o.Own.Key); err == nil {
				e, err = counting.StartTLS("", &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12})
			}
		} else {
			e, err = counting.Start("")
		}
		if err != nil {
			return nil, nil, err
		}
		state.Locations = append(state.Locations, e.ConnectionString())
	}
	if o.NATS {
		var err error
		if state.NATS, err = serveNATS(o); err != nil {
			return nil, nil, err
		}
	}
	f := filler{engine: engine, stops: make(map[string]func())}
	return state, func(line json.RawMessage) (any, error) {
		var order serverOrder
		err := json.Unmarshal(line, &order)
		switch {
		case err != nil:
		case order.Fill != "":
			err = f.keepFull(order.Fill, order.Messages, order.Size)
		case order.Drop != "":
			err = f.drop(order.Drop)
		default:
			state.Requests, state.Limited = counting.Counts().Requests(), counting.Counts().OverQuota
			state.Processor, err = processorTime()
		}
		return state, err
	}, nil
}

// ownKeyPair returns a certificate of this machine, which is valid for a day. All servers of a process have the same: the
// process reads once which certificates it trusts.
var ownKeyPair = sync.OnceValues(func() (own keyPair, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return own, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(0, 0, 1),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	made, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return own, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(private)
	own.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made})
	own.Key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	return own, err
})

// trustOwnCertificate makes this process and those that it starts trust its servers, before its first connection over
// TLS. It works on Linux.
func trustOwnCertificate(h *harness) error {
	own, err := ownKeyPair()
	if err != nil {
		return err
	}
	dir, err := h.folder("tls")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "certificate.pem")
	return errors.Join(os.WriteFile(path, own.Certificate, 0o600), os.Setenv("SSL_CERT_FILE", path))
}

// serveNATS starts a NATS server in this process and returns its address.
func serveNATS(o serverOptions) (url string, err error) {
	s, err := nats.NewServer(&nats.Options{
		Host: "127.0.0.1", Port: nats.RANDOM_PORT, NoLog: true, NoSigs: true,
		JetStream: o.JetStream != "", StoreDir: o.JetStream, SyncAlways: o.Synced,
	})
	if err != nil {
		return "", err
	}
	go s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		return "", errors.New("the NATS server does not start")
	}
	return s.ClientURL(), nil
}

// filler keeps queues full.
type filler struct {
	engine *localqueue.Engine
	stops  map[string]func() // by queue
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

// roleVariable makes this program a child with that role. A child reads JSON values from its standard input and
// answers each, until the input ends.
const roleVariable = "MILLRACE_BENCH_ROLE"

// roles begin with a first value, which they answer, and may answer more.
var roles = map[string]func(first json.RawMessage) (answer any, more answerer, err error){
	"server": serve,
	"worker": work,
	"growth": grow,
}

// answerer answers further values.
type answerer func(json.RawMessage) (any, error)

// answer is a line of a child.
type answer struct {
	Value any    `json:",omitempty"`
	Error string `json:",omitempty"`
}

// playRole makes this process a child, and does not return, if it was started as one.
func playRole() {
	role, asked := roles[os.Getenv(roleVariable)]
	if !asked {
		return
	}
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the parent too, which ends its children
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	var more answerer
	for {
		var line json.RawMessage
		if err := in.Decode(&line); err != nil {
			os.Exit(0) // the parent has closed the input, or has ended
		}
		var a answer
		var err error
		if more == nil {
			a.Value, more, err = role(line)
		} else {
			a.Value, err = more(line)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if out.Encode(a) != nil {
			os.Exit(1)
		}
	}
}

type child struct {
	role    string
	process *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

// startChild starts a child and asks it for the first time. The end of the context kills it; a server outlives that,
// so that its clients end in order.
func startChild(ctx context.Context, role string, first, into any) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{role: role, process: exec.CommandContext(ctx, program)}
	c.process.Env = append(os.Environ(), roleVariable+"="+role)
	c.process.Stderr = os.Stderr
	if c.in, err = c.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = json.NewDecoder(out)
	if err := c.process.Start(); err != nil {
		return nil, err
	}
	if err := c.ask(first, into); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

// ask sends a value and reads the answer.
func (c *child) ask(line, into any) error {
	if err := json.NewEncoder(c.in).Encode(line); err != nil {
		return fmt.Errorf("ask the %s process: %w", c.role, err)
	}
	a := answer{Value: into}
	if err := c.out.Decode(&a); err != nil {
		return fmt.Errorf("read the answer of the %s process: %w", c.role, err)
	}
	if a.Error != "" {
		return fmt.Errorf("%s process: %s", c.role, a.Error)
	}
	return nil
}

// stop ends the process and waits for it.
func (c *child) stop() error { return errors.Join(c.in.Close(), c.process.Wait()) }

// build builds programs and returns the folder with them.
func (h *harness) build(ctx context.Context, packages ...string) (dir string, err error) {
	if dir, err = h.folder("bin"); err != nil {
		return "", err
	}
	args := append([]string{"build", "-o", dir + string(filepath.Separator)}, packages...)
	if output, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", strings.Join(packages, " and "), err, output)
	}
	return dir, nil
}

// program is a running program.
type program struct {
	name  string
	cmd   *exec.Cmd
	lines *bufio.Scanner
	ended bool
}

// startProgram starts a program. The end of the context interrupts it.
func startProgram(ctx context.Context, name, path string, args ...string) (*program, error) {
	p := &program{name: name, cmd: exec.CommandContext(ctx, path, args...)}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(os.Interrupt) }
	p.cmd.WaitDelay = 10 * time.Second
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.lines = bufio.NewScanner(out)
	return p, p.cmd.Start()
}

// until reads lines until so many match, and returns the last match.
func (p *program) until(pattern *regexp.Regexp, times int) (string, error) {
	for p.lines.Scan() {
		if found := pattern.FindString(strings.TrimSpace(p.lines.Text())); found != "" {
			if times--; times == 0 {
				return found, nil
			}
		}
	}
	return "", fmt.Errorf("%s ended early", p.name)
}

// connectionString is what millrace serve prints.
var connectionString = regexp.MustCompile(`\S*QueueEndpoint=\S*`)

// wait waits for the end of the program.
func (p *program) wait() error {
	if p.ended {
		return nil
	}
	p.ended = true
	for p.lines.Scan() { // or it waits for a reader
	}
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// stop interrupts the program and waits for its end.
func (p *program) stop() error {
	_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended
	return p.wait()
}

// processorTime returns the processor time that the threads of the program have used, which Linux counts in
// nanoseconds; 0 on other systems.
func (p *program) processorTime() (used time.Duration, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.cmd.Process.Pid))
	for _, path := range threads {
		text, failed := os.ReadFile(path)
		if errors.Is(failed, os.ErrNotExist) {
			continue // the thread has ended
		}
		first, _, _ := strings.Cut(string(text), " ")
		n, wrong := strconv.ParseInt(first, 10, 64)
		used += time.Duration(n)
		err = errors.Join(err, failed, wrong)
	}
	return used, err
}

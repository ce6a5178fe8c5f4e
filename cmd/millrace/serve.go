package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/emulator"
)

// grace is how long requests in progress may take after the first signal.
const grace = 10 * time.Second

func serveCommand() *command {
	s := new(settings)
	return &command{name: "serve", does: "serve queues on this machine until Ctrl-C", flags: s.flags(), more: serveMore, epilogue: faultRulesHelp("The rules of -faults") + "millrace faults changes them while the server runs.\n",
		hint: func(wrong string) string {
			if strings.HasSuffix(wrong, "not defined: -account") {
				return "serve has -serve-account name:key; -account is for the other commands"
			}
			return ""
		},
		run: func(ctx context.Context, c *console, _ []string) error {
			if err := s.check(c.getenv); err != nil {
				return usageError{err}
			}
			return s.serve(ctx, c.out)
		}}
}

// serve serves until a signal, or until ctx ends.
func (s *settings) serve(ctx context.Context, out io.Writer) error {
	out = &lockedWriter{to: out}
	certificate, err := s.certificate()
	if err != nil {
		return err
	}
	d, err := s.openData()
	if err != nil {
		return err
	}
	return errors.Join(s.serveData(ctx, d, certificate, out), d.close())
}

func (s *settings) serveData(ctx context.Context, d *data, certificate *tls.Config, out io.Writer) error {
	front := &page{settings: s, engine: d.engine}
	o := &emulator.Options{Accounts: s.keys, Public: s.public, Hosts: s.hosts, Delay: s.delay, Front: front}
	s.injectFaults(o, out)
	server := emulator.New(d.engine, o)
	front.server = server
	start := server.Start
	if certificate != nil {
		start = func(addr string) (*emulator.Endpoint, error) { return server.StartTLS(addr, certificate) }
	}
	endpoint, err := start(s.addr)
	if network := new(net.OpError); errors.As(err, &network) { // its text repeats the address
		return fmt.Errorf("listen on %s: %w; stop the program that listens there, or choose another address with -addr, such as 127.0.0.1:0 for any free port", s.addr, network.Err)
	}
	if err != nil {
		return err
	}
	err = millrace.Run(ctx, &service{settings: s, data: d, endpoint: endpoint, out: out, halted: make(chan struct{})})
	if s.log {
		_, _ = io.WriteString(out, server.Counts().String()) // nothing can be done about an error
	}
	return err
}

// certificate returns the TLS configuration, or nil without TLS.
func (s *settings) certificate() (*tls.Config, error) {
	if s.cert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(s.cert, s.key)
	if err != nil {
		return nil, fmt.Errorf("-cert %s with -key %s: %w; both must be PEM files that belong together", s.cert, s.key, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}, nil
}

// service makes an endpoint a millrace.Runner.
type service struct {
	settings *settings
	data     *data
	endpoint *emulator.Endpoint
	out      io.Writer
	halt     sync.Once
	halted   chan struct{} // closed by Halt
}

// Run prints what is served, serves until ctx ends, and lets requests finish.
func (s *service) Run(ctx context.Context) error {
	s.settings.printStartup(s.out, s.endpoint, s.data) // after Run has registered for signals
	select {
	case <-ctx.Done():
	case <-s.endpoint.Done(): // it has failed
		return s.endpoint.Close()
	}
	printf(s.out, "Stopping: requests in progress may finish. Press Ctrl-C again to stop at once.\n")
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	var watch sync.WaitGroup
	defer watch.Wait()
	watch.Go(func() {
		defer cancel()
		select {
		case <-s.halted:
		case <-ending.Done():
		}
	})
	defer cancel()
	switch err := s.endpoint.Shutdown(ending); {
	case err == nil:
		printf(s.out, "Stopped.\n")
	case ending.Err() != nil:
		printf(s.out, "Stopped. Requests in progress were aborted.\n")
	default:
		return err
	}
	return nil
}

// Halt makes Run return at once.
func (s *service) Halt() { s.halt.Do(func() { close(s.halted) }) }

// lockedWriter makes writes of several goroutines atomic.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer // guarded by mu
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

const serveMore = `It serves the development account, whose key is public, and the accounts of -serve-account. With
-public it serves only the latter. All users of the machine can see a key on the command line:
use name:@FILE, or put name:key into the environment variable ` + accountsVariable + `.
`

// faultRulesHelp describes the rules of serve -faults and of faults set.
func faultRulesHelp(rules string) string {
	return "\n" + rules + ` are operation:fault@when, separated by spaces or commas:

  get:503@5%            one in twenty gets, at random; -seed repeats them
  put:500@1/100         every hundredth put
  delete:drop@#3,7      the third and seventh delete are executed, without a response
  *:delay=200ms@10%     a tenth of all requests is delayed
  update:duplicate      all updates are executed twice

Operations are *, put, get, peek, update, delete, clear and the names of the service, such as
CreateQueue. Faults are 503, 500, 408, 403, reset, drop, duplicate and delay=200ms.
`
}

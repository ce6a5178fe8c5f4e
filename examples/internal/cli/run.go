package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/millrace/millrace"
)

// Task is a [millrace.Runner] that returns soon after its context ends. The runners within it see a second signal
// themselves.
type Task func(ctx context.Context) error

// Run runs the task.
func (t Task) Run(ctx context.Context) error { return t(ctx) }

// Halt does nothing.
func (Task) Halt() {}

// UnlessStopped returns the error of a program that works until it is stopped: nil if the stop is its cause.
func UnlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Pages serves pages without a password. It says where they are, such as "The page is at", and warns if other machines
// reach them.
func Pages(s *http.Server, say func(format string, args ...any), where, warning string) millrace.Runner {
	s.BaseContext = func(l net.Listener) context.Context {
		if tcp, ok := l.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
			say("%s", warning)
		}
		say("%s http://%v/; stop with Ctrl-C", where, l.Addr())
		return context.Background() // requests may finish after Ctrl-C
	}
	return pages{millrace.HTTP(s, nil), s.Addr}
}

type pages struct {
	millrace.Runner
	addr string
}

// Run serves the pages. It says what to do if the address cannot be had.
func (p pages) Run(ctx context.Context) error {
	err := p.Runner.Run(ctx)
	if network := (*net.OpError)(nil); errors.As(err, &network) && network.Op == "listen" {
		return fmt.Errorf("cannot serve the pages on %s: %w; choose another address with -addr, such as 127.0.0.1:0 for any free port", p.addr, network.Err)
	}
	return err
}
